// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestUser checks that with --user, the target runs as that user, with the user's groups
// and home directory and without capabilities. The target, and programs of lklctl exec,
// must be served like any others.
func TestUser(t *testing.T) {
	bin := kit.PublicBin(t) // the target's user must be able to read the library
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			s.Web(kit.Nginx{})
			lklrun := func(args ...string) *exec.Cmd {
				return exec.Command(bin+"/lklrun", append([]string{"-q", "--engine", engine, "--user", "nobody"}, args...)...)
			}
			before := kit.Take(t, s.Server)
			k := s.TalkBy(lklrun, "--if", s.TapIf(), "--dns", kit.ServerAddr)
			k.Connect("c", kit.ServerAddr, 80)
			const who = `(lambda o: (o.getresuid(), o.getresgid(), o.getgroups(), o.environ["HOME"], o.environ["USER"], o.environ["LOGNAME"]))(__import__("os"))`
			if got := k.Say(who); got != "((65534, 65534, 65534), (65534, 65534, 65534), [65534], '/nonexistent', 'nobody', 'nobody')" {
				t.Errorf("the target is %s", got)
			}
			target := kit.ProcessOf(t, k, "target_pid")
			if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", target)); err != nil || !kit.NoRights.Match(status) {
				t.Errorf("the target's rights (%v):\n%s", err, status)
			}
			if got := k.Say(`open("/etc/resolv.conf").read().split()[-1]`); got != "'"+kit.ServerAddr+"'" {
				t.Errorf("its name server is %s", got)
			}
			if engine == "supervise" {
				if got := kit.Lklctl(t, "-n", k.Name, "exec", "sh", "-c", "id; echo $HOME $USER; grep -E 'CapPrm|NoNew' /proc/self/status; curl -s http://"+kit.ServerAddr+"/hello"); got != fmt.Sprintf(
					"uid=%d(nobody) gid=%d(nogroup) groups=%d(nogroup)\n/nonexistent nobody\nCapPrm:\t0000000000000000\nNoNewPrivs:\t1\nhello\n", kit.Nobody, kit.Nobody, kit.Nobody) {
					t.Errorf("a program of lklctl exec: %s", got)
				}
			}
			if r := k.End(); r.Status != 0 || r.Stderr != "" {
				t.Errorf("the run: %v", r)
			}
			before.Same()

			// A process that changes its user loses its parent-death signal.
			k = s.TalkBy(lklrun, "--if", s.TapIf())
			k.Say("1")
			pid, host, target := kit.ProcessOf(t, k, "pid"), kit.ProcessOf(t, k, "host_pid"), kit.ProcessOf(t, k, "target_pid")
			kit.Pause(t, pid, kit.Limit)
			if err := unix.Kill(host, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			kit.WaitFor(t, "the target's end after lklhost's", kit.Limit, func() bool { return !kit.Alive(target) })
			k.Proc.Signal(unix.SIGCONT)
			k.Proc.Wait(kit.Limit)
			before.Same()
		})
	}
}

// TestUserHostNet checks that connections of --host-net also belong to that user on the
// host.
func TestUserHostNet(t *testing.T) {
	s := kit.NewSite(t)
	l := kit.Host.Listen(t, "127.0.0.1:0")
	port := l.Addr().(*net.TCPAddr).Port
	k := s.Talk("-q", "--user", "nobody", "--host-net", "127.0.0.1")
	k.Connect("c", "127.0.0.1", port)
	if got := kit.Host.Run(t, "ss", "-tneH", "dport", "=", fmt.Sprint(port)); !strings.Contains(got, fmt.Sprintf(" uid:%d ", kit.Nobody)) {
		t.Errorf("the connection on the host: %s", got)
	}
	k.End()
}

// TestUserDetached checks --user in the background, and a user that has a number but no
// name.
func TestUserDetached(t *testing.T) {
	s := kit.NewSite(t)
	name, log := kit.NewName(), filepath.Join(s.Dir, "log")
	before := kit.Take(t, s.Server)
	kit.OK(t, kit.Limit, kit.Lklrun("-q", "--name", name, "--detach", "--log", log, "--user", "4321:1234", "--", "sh", "-c", "id; echo $HOME $USER; sleep 1000"))
	var said []byte
	kit.WaitFor(t, "what the program says", kit.Limit, func() bool {
		said, _ = os.ReadFile(log) // checked below
		return strings.Count(string(said), "\n") == 2
	})
	if string(said) != "uid=4321 gid=1234 groups=1234\n/ 4321\n" {
		t.Errorf("in the background: %s", said)
	}
	kit.Lklctl(t, "-n", name, "stop")
	if err := os.Remove(log); err != nil {
		t.Error(err)
	}
	kit.Forget(t, name)
	before.Settles(kit.Limit)
}

// TestUserRefused checks that lklrun reports an impossible use of --user in one line.
func TestUserRefused(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "setpriv")
	bin, dir := kit.PublicBin(t), kit.Dir(t)
	setuid := filepath.Join(dir, "id")
	kit.Host.Run(t, "cp", "/usr/bin/id", setuid)
	kit.Host.Run(t, "chmod", "u+s", setuid)
	mine := fmt.Sprintf("%d:%d", kit.OrdinaryUID, kit.OrdinaryUID)
	root := func(args ...string) *exec.Cmd { return exec.Command(args[0], args[1:]...) }
	user := func(args ...string) *exec.Cmd { return kit.AsUser(root(args...), "") }
	private := filepath.Join(dir, "private")
	kit.Host.Run(t, "cp", "-r", bin, private)
	kit.Host.Run(t, "chmod", "700", private)
	before := kit.Take(t, s.Server)
	for _, tt := range []struct {
		names string
		by    func(args ...string) *exec.Cmd
		args  []string
	}{
		{`--user "no-such": no such user`, root, []string{"--user", "no-such", "--", "true"}},
		{`--user "4321": no such user; expected UID:GID, because the group is unknown`, root, []string{"--user", "4321", "--", "true"}},
		{`--user: the value is empty`, root, []string{"--user", "", "--", "true"}},
		{`set-user-ID to 0, which has no effect with --user`, root, []string{"--user", "nobody", "--", setuid}},
		{`--user nobody \(65534:65534\): only root`, user, []string{"--user", "nobody", "--", "true"}},
		{`root lacks CAP_SETUID here`, kit.AllRights[1].Command, []string{"--user", "nobody", "--", "true"}},
	} {
		kit.OneLine(t, kit.Run(t, kit.Limit, tt.by(append([]string{bin + "/lklrun", "-q"}, tt.args...)...)), 2, tt.names)
		before.Same()
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, root(private+"/lklrun", "-q", "--engine", "preload", "--user", "nobody", "--", "/usr/bin/id")), 2, "the command's user cannot read the stack")
	before.Same()
	// An ordinary user may name their own user.
	if got := kit.OK(t, kit.Limit, user(bin+"/lklrun", "-q", "--user", mine, "--", "id", "-u")); got != fmt.Sprintln(kit.OrdinaryUID) {
		t.Errorf("an ordinary user as himself: %s", got)
	}
}
