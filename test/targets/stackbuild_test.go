// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestStackSourceDoesNotFit checks that third_party/lkl refuses a kernel source that its
// fixes do not fit, and names the file. Without this check, a fix for a missing file
// would be omitted silently.
func TestStackSourceDoesNotFit(t *testing.T) {
	t.Parallel()
	kit.Need(t, "make", "gcc")
	source := kit.Dir(t)
	builds := func(want ...string) {
		t.Helper()
		dir := kit.Dir(t)
		cmd := exec.Command("make", "-s", "-C", filepath.Join(kit.Root(), "third_party/lkl"), "LINUX_SOURCE="+source, "OUT="+dir)
		cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+dir)
		r := kit.Run(t, kit.Limit, cmd)
		var said []string
		for _, line := range strings.Split(r.Stderr, "\n") {
			if line != "" && !strings.HasPrefix(line, "make") {
				said = append(said, line)
			}
		}
		if r.Status != 2 || len(said) != 1 {
			t.Errorf("%v", r)
		}
		for _, w := range append(want, "lkl: ", source) {
			if !strings.Contains(r.Stderr, w) {
				t.Errorf("%q is not said in %q", w, said)
			}
		}
	}
	builds("is no kernel source")
	kit.WriteFile(t, filepath.Join(source, "Kbuild"), "")
	kit.WriteFile(t, filepath.Join(source, "Makefile"), "")
	builds("has no net/mptcp/subflow.c, which arch/lkl/fixes/mptcp_subflow.inc mends", "expected Linux 6.12.117 or a later")
	kit.WriteFile(t, filepath.Join(source, "net/mptcp/subflow.c"), "static bool subflow_check_data_avail(struct sock *ssk)\n{\n\treturn true;\n}\n")
	builds("subflow_check_data_avail() in", "mptcp_subflow.inc mends", "arch/lkl/fixes/list")
}
