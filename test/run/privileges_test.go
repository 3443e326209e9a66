// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestPrivileges checks programs that give up privileges or their file system, or make
// themselves undumpable, like nginx's workers and ssh-agent. They must keep their
// sockets, and be able to create new ones.
func TestPrivileges(t *testing.T) {
	kit.NewSite(t)
	kit.Need(t, "setpriv")
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	kit.Host.Run(t, "cp", kit.TestData("privileges.py"), dir)
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	as := map[string]func(args []string) *exec.Cmd{
		"root": func(args []string) *exec.Cmd { return exec.Command(args[0], args[1:]...) },
		"user": func(args []string) *exec.Cmd { return kit.AsUser(exec.Command(args[0], args[1:]...), "") },
		"without namespaces": func(args []string) *exec.Cmd {
			cmd := exec.Command("sh", append([]string{"-c",
				`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --reuid=1 --regid=1 --clear-groups "$@"`, "sh"}, args...)...)
			cmd.SysProcAttr = kit.InUserNamespace()
			return cmd
		},
	}
	for _, tt := range []struct{ who, gives, uid string }{
		{"root", "undumpable", "0"},
		{"root", "uid 65534", "65534"},
		{"root", "chroot " + empty + " groups uid 65534 undumpable", "65534"},
		{"root", "caps undumpable", "0"},
		{"root", "groups caps", "0"},
		{"user", "undumpable", fmt.Sprint(kit.OrdinaryUID)},
		{"user", "caps undumpable", fmt.Sprint(kit.OrdinaryUID)},
		{"without namespaces", "undumpable", "1"},
	} {
		t.Run(tt.who+", "+strings.ReplaceAll(tt.gives, "/", "_"), func(t *testing.T) {
			args := append([]string{bin + "/lklrun", "-q", "--name", kit.NewName(), "--", "/usr/bin/python3", dir + "/privileges.py"}, strings.Fields(tt.gives)...)
			r := kit.Run(t, kit.Limit, as[tt.who](args))
			if r.Status != 0 || r.Stdout != "all well "+tt.uid+"\n" {
				t.Error(r)
			}
		})
	}
}

// TestSetUserID checks a program that gains privileges from its file. For an ordinary
// user it is refused, because it would run without these privileges. For root it runs
// with them.
func TestSetUserID(t *testing.T) {
	s := kit.NewSite(t)
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	for _, name := range []string{"root", "other", "group"} {
		kit.Host.Run(t, "cp", "/usr/bin/id", filepath.Join(dir, name))
	}
	kit.Host.Run(t, "chmod", "u+s", filepath.Join(dir, "root"))
	kit.Host.Run(t, "chown", "65534", filepath.Join(dir, "other"))
	kit.Host.Run(t, "chmod", "u+s", filepath.Join(dir, "other"))
	kit.Host.Run(t, "chmod", "g+s", filepath.Join(dir, "group"))
	kit.Host.Run(t, "cp", "/usr/bin/id", filepath.Join(dir, "own"))
	kit.Host.Run(t, "chown", fmt.Sprint(kit.OrdinaryUID), filepath.Join(dir, "own"))
	kit.Host.Run(t, "chmod", "u+s", filepath.Join(dir, "own"))
	run := func(name string, args ...string) *exec.Cmd {
		return exec.Command(bin+"/lklrun", append([]string{"-q", "--name", kit.NewName(), "--", filepath.Join(dir, name)}, args...)...)
	}
	before := kit.Take(t, s.Server)
	for _, name := range []string{"root", "other"} {
		r := kit.Run(t, kit.Limit, kit.AsUser(run(name, "-u"), ""))
		if said := kit.Lines(r.Stderr); r.Status != 2 || r.Stdout != "" || len(said) != 1 || !strings.Contains(said[0], "set-user-ID") || !strings.Contains(said[0], "as root") {
			t.Errorf("%s as an ordinary user: %v", name, r)
		}
	}
	// A set-group-ID bit does not matter. Neither does a set-user-ID bit of the user's
	// own file.
	for _, name := range []string{"group", "own"} {
		if r := kit.Run(t, kit.Limit, kit.AsUser(run(name, "-u"), "")); r.Status != 0 || r.Stdout != fmt.Sprintln(kit.OrdinaryUID) {
			t.Errorf("%s as an ordinary user: %v", name, r)
		}
	}
	if r := kit.Run(t, kit.Limit, run("other", "-u")); r.Status != 0 || r.Stdout != "65534\n" {
		t.Errorf("as root: %v", r)
	}
	before.Same()
}

// TestUnreadable checks a program file without read permission. For an ordinary user, the
// program cannot be served, and a line must explain this.
func TestUnreadable(t *testing.T) {
	kit.NewSite(t)
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	kit.Host.Run(t, "install", "-m", "711", kit.Probe(), filepath.Join(dir, "probe"))
	r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(bin+"/lklrun", "-q", "--name", kit.NewName(), "--", filepath.Join(dir, "probe"), "dial", "127.0.0.1:9"), ""))
	if r.Status == 0 || !strings.Contains(r.Stderr, "cannot access its sockets (Operation not permitted)") {
		t.Error(r)
	}
	if r := kit.Run(t, kit.Limit, exec.Command(bin+"/lklrun", "-q", "--name", kit.NewName(), "--", filepath.Join(dir, "probe"), "dial", "127.0.0.1:9")); !strings.Contains(r.Stderr, "connection refused") {
		t.Errorf("as root: %v", r)
	}
}
