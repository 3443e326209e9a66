// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestMissingPackages checks that a user without root gets one command for all packages of a
// target, before anything is built. dpkg's database is empty in the mount namespace of make.
func TestMissingPackages(t *testing.T) {
	kit.Need(t, "dpkg-query", "setpriv", "unshare")
	dir := t.TempDir()
	for _, c := range []struct{ target, packages string }{
		{"demo", "linux-source-6.12 nginx-light"},
		{"cross", "linux-source-6.12 gcc-aarch64-linux-gnu libdeflate-tools"},
		{"deb", "linux-source-6.12 gcc-aarch64-linux-gnu libdeflate-tools"},
	} {
		t.Run(c.target, func(t *testing.T) {
			copied := filepath.Join(dir, c.target)
			kit.OK(t, kit.Limit, exec.Command("sh", "-c", `mkdir "$2" && cp -r "$1/Makefile" "$1/.ci" "$2" && chmod -R a+rwX "$2" && chmod a+rx "$2/.." "$2/../.."`, "sh", kit.Root(), copied))
			r := kit.Run(t, kit.Limit, exec.Command("unshare", "-m", "sh", "-c",
				`mount -t tmpfs none /var/lib/dpkg && : >/var/lib/dpkg/status && exec setpriv --reuid 65534 --regid 65534 --clear-groups make -s -C "$1" "$2"`, "sh", copied, c.target))
			var lines []string
			for _, line := range strings.Split(r.Stderr, "\n") {
				if strings.HasPrefix(line, "packages: ") {
					lines = append(lines, line)
				}
			}
			if r.Status == 0 || len(lines) != 1 {
				t.Fatalf("make %s: %v", c.target, r)
			}
			for _, p := range strings.Fields(c.packages) {
				if !strings.Contains(lines[0], " "+p+" ") && !strings.HasSuffix(lines[0], " "+p) {
					t.Errorf("make %s does not name %s: %s", c.target, p, lines[0])
				}
			}
		})
	}
}
