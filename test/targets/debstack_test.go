// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestDebianStackBuild builds a stack on a clean Debian 12, from the packages and without
// a network, as a user without rights. After a change of one file, the second build must
// compile that file and no others.
func TestDebianStackBuild(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	d := newDebian(t)
	d.fill("amd64-build.tar", "tar", "--numeric-owner", "-xf")
	d.onDisk("home") // the kernel and its objects
	debs := d.put(d.deb("lklrun", "amd64")) + " " + d.put(d.deb("lklrun-stack-dev", "all"))
	d.run("root", "apt-get -qy install --no-install-recommends curl linux-source-6.12 "+debs+"; useradd -m user")
	patch := patchOf(t, d.root, change{"net/ipv4/tcp_input.c", "\n" + connected, "\n" + connected + "\tpr_info(\"MESSAGE\\n\");\n"})
	d.buildsStack("user", "/home/user", patch, "net/mptcp/protocol.o")
}

// buildsStack builds a stack with a patch, and then with another version of the patch. The
// first build must compile a file, and a program must run on both stacks.
func (d *debian) buildsStack(user, home, patch, file string) {
	build := func(message string) (compiled []string) {
		d.t.Helper()
		kit.WriteFile(d.t, filepath.Join(d.root, home, "my.patch"), strings.Replace(patch, "MESSAGE", message, 1))
		d.t.Log(kit.OK(d.t, buildLimit, d.command(user, "lklrun stack build --kernel 6.12 --patch my.patch --name mine 2>&1")))
		for _, line := range kit.Lines(kit.ReadFile(d.t, filepath.Join(d.root, home, ".cache/lklrun/stack-mine.log"))) {
			if file, ok := strings.CutPrefix(line, "  CC "); ok {
				compiled = append(compiled, strings.TrimSpace(file))
			}
		}
		return compiled
	}
	// The kernel's log has the message of the patch.
	runs := func(message string) {
		d.t.Helper()
		line := "lklrun -q --detach --name t --stack mine -- sh -c 'curl -sS -m 20 " + kit.ServerURL + "/hello; sleep 60'; trap 'lklctl stop t; lklctl rm t' EXIT; " +
			"timeout 60 sh -c 'until lklctl logs t | grep hello; do :; done'; lklctl -n t dmesg"
		if got := d.run(user, line); !strings.Contains(got, "hello\n") || !strings.Contains(got, message) {
			d.t.Errorf("%s: %q", line, got)
		}
	}
	if compiled := build("first-patch"); !slices.Contains(compiled, file) {
		d.t.Errorf("the first build compiled only %v", compiled)
	}
	runs("first-patch")
	// init/version-timestamp.o and the like are compiled each time.
	if compiled := build("second-patch"); !slices.Contains(compiled, "net/ipv4/tcp_input.o") || len(compiled) > 5 {
		d.t.Errorf("after a change of tcp_input.c, the second build compiled %v", compiled)
	}
	runs("second-patch")
	if got := d.run(user, "lklrun stack show mine"); !strings.Contains(got, "linux-source-6.12") || !strings.Contains(got, home+"/my.patch") {
		d.t.Errorf("stack show:\n%s", got)
	}
}

// onDisk puts a directory of the system on a disk, because it may become large.
func (d *debian) onDisk(name string) {
	d.t.Helper()
	dir, err := os.MkdirTemp(filepath.Join(kit.Root(), "build", "deb-test"), name)
	kit.Must(d.t, err, os.Chmod(dir, 0o755))
	d.mount(dir, name, unix.MS_BIND)
	d.t.Cleanup(func() { kit.Must(d.t, os.RemoveAll(dir)) })
}
