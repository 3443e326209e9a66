// SPDX-License-Identifier: Apache-2.0

package escape

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/raw_control.py
var rawControl string

// runs opens the parent of the run directories, and creates it if it does not exist.
func runs(t *testing.T, dir string) *os.File {
	t.Helper()
	kit.Must(t, os.MkdirAll(dir, 0o700))
	if strings.HasPrefix(dir, "/tmp") {
		kit.Must(t, os.Chown(dir, kit.OrdinaryUID, kit.OrdinaryUID))
	}
	f, err := os.Open(dir)
	kit.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestFinding06TargetControl checks that a program on a stack controls neither its own
// run nor another one. It tries lklctl, and connects to the socket by every path.
func TestFinding06TargetControl(t *testing.T) {
	s := kit.NewSite(t)
	bin := kit.PublicBin(t)
	root := func(name string, args ...string) *exec.Cmd { return exec.Command(bin+"/"+name, args...) }
	user := func(name string, args ...string) *exec.Cmd { return kit.AsUser(root(name, args...), "") }
	for _, who := range []struct {
		name, dir string
		command   func(name string, args ...string) *exec.Cmd
		flags     []string
	}{
		{"root", "/run/lklrun", root, nil},
		{"user", fmt.Sprintf("/tmp/lklrun-%d", kit.OrdinaryUID), user, nil},
		{"--user", "/run/lklrun", root, []string{"--user", "nobody"}},
		{"preload", fmt.Sprintf("/tmp/lklrun-%d", kit.OrdinaryUID), user, []string{"--engine", "preload"}},
	} {
		t.Run(who.name, func(t *testing.T) {
			name := kit.NewName()
			program := kit.Dir(t) + "/raw.py"
			kit.Must(t, os.WriteFile(program, []byte(rawControl), 0o644))
			script := fmt.Sprintf(`%[1]s/lklctl -n %[2]s link add user; echo $?; %[1]s/lklctl list; echo $?
				exec /usr/bin/python3 %[3]s %[4]s/%[2]s %[2]s`, bin, name, program, who.dir)
			args := append([]string{"-q", "--name", name, "--if", "user"}, who.flags...)
			cmd := who.command("lklrun", append(args, "--", "sh", "-c", script)...)
			cmd.ExtraFiles = []*os.File{runs(t, who.dir)}
			r := kit.Run(t, kit.Limit, cmd)
			want := "1\n1\n0 True\n"
			if who.name == "--user" { // has run directories of its own, which are empty
				want = "3\n0\n0 True\n"
			}
			if r.Status != 0 || r.Stdout != want {
				t.Errorf("%v", r)
			}
			if who.name != "--user" && strings.Count(r.Stderr, "may not control it; run lklctl outside") != 2 {
				t.Errorf("lklctl does not say why: %v", r)
			}
			// From outside, control works as before.
			k := s.In(t).TalkBy(func(args ...string) *exec.Cmd { return who.command("lklrun", append([]string{"-q"}, args...)...) }, who.flags...)
			k.Say("1")
			if got := kit.OK(t, kit.Limit, who.command("lklctl", "-n", k.Name, "addr")); !strings.Contains(got, "127.0.0.1") {
				t.Errorf("lklctl outside: %s", got)
			}
			k.End()
		})
	}
}

// TestControlHidepid checks a host whose /proc hides processes (hidepid=). An ordinary
// user can still control their own runs from outside, but the programs in the runs
// cannot.
func TestControlHidepid(t *testing.T) {
	s := kit.NewSite(t)
	bin := kit.PublicBin(t)
	kit.Must(t, unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"))
	t.Cleanup(func() { kit.Must(t, unix.Unmount("/proc", unix.MNT_DETACH)) })
	user := func(name string, args ...string) *exec.Cmd {
		return kit.AsUser(exec.Command(bin+"/"+name, args...), "")
	}
	k := s.TalkBy(func(args ...string) *exec.Cmd {
		cmd := user("lklrun", append([]string{"-q", "--if", "user"}, args...)...)
		cmd.ExtraFiles = []*os.File{runs(t, fmt.Sprintf("/tmp/lklrun-%d", kit.OrdinaryUID))}
		return cmd
	})
	k.Say("1")
	if got := kit.OK(t, kit.Limit, user("lklctl", "-n", k.Name, "addr")); !strings.Contains(got, "127.0.0.1") {
		t.Errorf("lklctl outside: %s", got)
	}
	k.Say(`keep.__setitem__("s", socket.socket(socket.AF_UNIX))`)
	if got := k.Say(`keep["s"].connect("/proc/self/fd/3/%s/ctl.sock")`, k.Name); got != "None" {
		t.Errorf("the target connects: %s", got)
	}
	if got := k.Say(`keep["s"].recv(4096)[-200:]`); !strings.Contains(got, "run lklctl outside") {
		t.Errorf("the target hears %s", got)
	}
	k.End()
}

// TestFinding11InterfaceDescriptor checks that only lklrun has the descriptor of an
// interface. The program has neither the descriptor of the command line nor any other
// descriptor for the wire.
func TestFinding11InterfaceDescriptor(t *testing.T) {
	kit.NewSite(t)
	for _, engine := range []string{"supervise", "preload"} {
		for _, flags := range [][]string{nil, {"--wait-all"}} {
			if flags != nil && engine == "preload" {
				continue
			}
			p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			kit.Must(t, err)
			theirs, ours := os.NewFile(uintptr(p[0]), "link"), os.NewFile(uintptr(p[1]), "far end")
			null, err := os.Open(os.DevNull)
			kit.Must(t, err)
			args := append([]string{"-q", "--engine", engine, "--if", "fd:4,ip=10.98.0.2/24"}, flags...)
			cmd := kit.Lklrun(append(args, "--", "/usr/bin/python3", "-c", `import os
print([os.readlink(f) for f in ("/proc/self/fd/3", "/proc/self/fd/4") if os.path.lexists(f)])`)...)
			cmd.ExtraFiles = []*os.File{null, theirs}
			r := kit.Run(t, kit.Limit, cmd)
			if r.Status != 0 || r.Stderr != "" || r.Stdout != "['/dev/null']\n" {
				t.Errorf("--engine %s %v: %v", engine, flags, r)
			}
			theirs.Close()
			ours.Close()
			null.Close()
		}
	}
}

//go:embed testdata/zygote_pid.py
var zygotePid string

// TestFinding17ZygotePid checks that the process id of a dead zygote has no special
// rights. If a program gets this process id later, lklhost handles its calls like any
// others.
func TestFinding17ZygotePid(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	r := kit.Run(t, 2*kit.Limit, kit.Lklrun("-q", "--wait-all", "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", zygotePid, kit.ServerAddr))
	if r.Status != 0 || r.Stdout != fmt.Sprintf("connected ('%s', 80)\nend\n", kit.ServerAddr) {
		t.Errorf("%v", r)
	}
}
