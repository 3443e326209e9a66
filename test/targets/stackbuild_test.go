// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestStackSourceDoesNotFit checks that third_party/lkl refuses a kernel source that
// its fixes do not fit, and names the file. Otherwise a fix for a missing file would be
// omitted silently.
func TestStackSourceDoesNotFit(t *testing.T) {
	t.Parallel()
	testutil.Need(t, "make", "gcc")
	source := testutil.Dir(t)
	builds := func(want ...string) {
		t.Helper()
		dir := testutil.Dir(t)
		cmd := exec.Command("make", "-s", "-C", filepath.Join(testutil.Root(), "third_party/lkl"), "LINUX_SOURCE="+source, "OUT="+dir)
		cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+dir)
		r := testutil.Run(t, testutil.Limit, cmd)
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
	testutil.WriteFile(t, filepath.Join(source, "Kbuild"), "")
	testutil.WriteFile(t, filepath.Join(source, "Makefile"), "")
	builds("has no net/mptcp/subflow.c, which arch/lkl/fixes/mptcp_subflow.inc mends", "expected Linux 6.12.117 or a later")
	testutil.WriteFile(t, filepath.Join(source, "net/mptcp/subflow.c"), "static bool subflow_check_data_avail(struct sock *ssk)\n{\n\treturn true;\n}\n")
	builds("subflow_check_data_avail() in", "mptcp_subflow.inc mends", "arch/lkl/fixes/list")
}
