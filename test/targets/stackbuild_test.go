// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestStackSourceDoesNotFit checks that third_party/lkl refuses a kernel source that its
// patches do not fit, and names the file. Without this check, a patch could damage
// another version of a function. None of these builds gets as far as the compiler.
func TestStackSourceDoesNotFit(t *testing.T) {
	t.Parallel()
	kit.Need(t, "make", "gcc", "patch")
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
	version := func(major, minor string) {
		kit.WriteFile(t, filepath.Join(source, "Makefile"), "VERSION = "+major+"\nPATCHLEVEL = "+minor+"\n")
	}
	builds("is no kernel source")
	kit.WriteFile(t, filepath.Join(source, "Kbuild"), "")
	kit.WriteFile(t, filepath.Join(source, "Makefile"), "")
	builds("has no VERSION and PATCHLEVEL")
	version("5", "4")
	builds("is Linux 5.4: expected 6.1 or later")
	version("6", "12")
	kit.WriteFile(t, filepath.Join(source, ".config"), "")
	builds("contains a build (.config)", "mrproper")
	if err := os.Remove(filepath.Join(source, ".config")); err != nil {
		t.Fatal(err)
	}
	builds("has no net/mptcp/subflow.c, which mptcp-fallback-mapping.patch mends")
	kit.WriteFile(t, filepath.Join(source, "net/mptcp/subflow.c"), "static bool subflow_check_data_avail(struct sock *ssk)\n{\n\treturn true;\n}\n")
	builds("subflow_check_data_avail() in", "mptcp-fallback-mapping.patch mends", "patches/6.12/series")
}
