// SPDX-License-Identifier: Apache-2.0

package escape

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/trap.py
var trap string

func startTrap(s *kit.Site, root string, uid int) *kit.Proc {
	s.T.Helper()
	p := kit.Start(s.T, exec.Command("/usr/bin/python3", "-c", trap, root, fmt.Sprint(uid)))
	kit.WaitFor(s.T, "the trap", kit.Limit, func() bool { out, _ := p.Output(); return strings.HasPrefix(out, "ready\n") })
	return p
}

// TestFinding05RunDirectory checks that a user's lklctl and lklrun use no file that
// another user has put in the place of the run directory. They send commands only to an
// lklhost of the user or of root.
func TestFinding05RunDirectory(t *testing.T) {
	s := kit.NewSite(t)
	bin := kit.PublicBin(t)
	root := fmt.Sprintf("/tmp/lklrun-%d", kit.OrdinaryUID)
	chown := func(path string, uid int) {
		t.Helper()
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(t *testing.T, p *kit.Proc, status int, why string, program string, args ...string) {
		t.Helper()
		r := kit.Run(t, kit.Limit, kit.AsUser(exec.Command(filepath.Join(bin, program), args...), ""))
		if said := kit.Lines(r.Stderr); r.Status != status || r.Stdout != "" || len(said) != 1 || !regexp.MustCompile("^"+program+": .*"+why).MatchString(said[0]) {
			t.Errorf("%s %v: want status %d and one line with %q: %v", program, args, status, why, r)
		}
		if out, _ := p.Output(); out != "ready\n" {
			t.Errorf("%s %v: %s", program, args, out)
		}
	}
	all := func(t *testing.T, p *kit.Proc, why string) {
		t.Helper()
		refused(t, p, 2, why, "lklctl", "list")
		refused(t, p, 2, why, "lklctl", "netstat")
		refused(t, p, 2, why, "lklctl", "exec", "--", "env")
		refused(t, p, 2, why, "lklrun", "--", "true")
		refused(t, p, 2, why, "lklrun", "cleanup")
	}
	remove := func(t *testing.T) {
		t.Helper()
		t.Cleanup(func() { _ = os.RemoveAll(root) }) // on a tmpfs that is discarded after the tests
	}
	t.Run("another user's", func(t *testing.T) {
		remove(t)
		p := startTrap(s.In(t), root, kit.OtherUID)
		chown(root, kit.OtherUID)
		all(t, p, fmt.Sprintf("%s belongs to uid %d; set XDG_RUNTIME_DIR", root, kit.OtherUID))
	})
	t.Run("a link", func(t *testing.T) {
		remove(t)
		dir := kit.Dir(t)
		p := startTrap(s.In(t), dir, kit.OtherUID)
		chown(dir, kit.OrdinaryUID)
		if err := os.Symlink(dir, root); err != nil {
			t.Fatal(err)
		}
		all(t, p, root+": not a directory; remove it or set XDG_RUNTIME_DIR")
	})
	t.Run("open to others", func(t *testing.T) {
		remove(t)
		p := startTrap(s.In(t), root, kit.OtherUID)
		chown(root, kit.OrdinaryUID)
		if err := os.Chmod(root, 0o777); err != nil {
			t.Fatal(err)
		}
		all(t, p, root+" is writable by other users; run `chmod 700")
	})
	t.Run("another user's socket", func(t *testing.T) {
		remove(t)
		p := startTrap(s.In(t), root, kit.OtherUID)
		chown(root, kit.OrdinaryUID)
		chown(root+"/web", kit.OrdinaryUID)
		for _, file := range []string{"lock", "state.json"} {
			chown(filepath.Join(root, "web", file), kit.OrdinaryUID)
		}
		why := fmt.Sprintf("ctl.sock is served by uid %d, which is neither this user nor root", kit.OtherUID)
		refused(t, p, 1, why, "lklctl", "netstat")
		refused(t, p, 125, why, "lklctl", "exec", "--", "env")
	})
	t.Run("root's socket, the user's own", func(t *testing.T) {
		for _, uid := range []int{0, kit.OrdinaryUID} {
			remove(t)
			p := startTrap(s.In(t), root, uid)
			chown(root, kit.OrdinaryUID)
			chown(root+"/web", kit.OrdinaryUID)
			chown(root+"/web/lock", kit.OrdinaryUID)
			c := kit.Start(t, kit.AsUser(exec.Command(bin+"/lklctl", "netstat"), ""))
			kit.WaitFor(t, "a client", kit.Limit, func() bool { out, _ := p.Output(); return strings.Contains(out, "somebody says") })
			c.Signal(unix.SIGINT)
			c.Wait(kit.Limit)
			_ = os.RemoveAll(root) // on a tmpfs that is discarded after the tests
		}
	})
}
