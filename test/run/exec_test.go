// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/terminal"
)

// startInside starts a program that prints "ready" when it runs.
func startInside(k *kit.Talker, args ...string) *kit.Proc {
	k.T.Helper()
	p := kit.Start(k.T, k.Inside(args...))
	kit.WaitFor(k.T, "a program by exec", kit.Limit, func() bool {
		out, _ := p.Output()
		return strings.Contains(out, "ready")
	})
	return p
}

// oneLineOf checks that a program printed one line on standard error, from lklctl.
func oneLineOf(t *testing.T, r kit.Result, names ...string) {
	t.Helper()
	said := kit.Lines(r.Stderr)
	if len(said) != 1 || !strings.HasPrefix(said[0], "lklctl: ") {
		t.Errorf("want one line of lklctl's: %q", r.Stderr)
	}
	for _, name := range names {
		if !strings.Contains(r.Stderr, name) {
			t.Errorf("want a line that names %s: %q", name, r.Stderr)
		}
	}
}

// TestExec checks that programs of `lklctl exec` use the instance's stack, with its
// addresses, sockets, resolv.conf and hosts. They inherit everything else from the caller.
func TestExec(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	dir := kit.Dir(t)
	before := kit.Take(t, s.Server)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf(), "--dns", "192.0.2.53", "--add-host", "web.example="+kit.ServerAddr)
	k.Say(`keep.__setitem__("l", socket.create_server(("", 8080)))`)

	if got := kit.OK(t, kit.Limit, k.Inside("curl", "-sS", kit.ServerURL+"/hello")); got != "hello\n" {
		t.Errorf("curl by exec: %q", got)
	}
	var links []struct {
		Name string `json:"ifname"`
		Addr []struct {
			Local string `json:"local"`
		} `json:"addr_info"`
	}
	text := kit.OK(t, kit.Limit, k.Inside("ip", "-j", "addr", "show", "dev", "eth0"))
	if err := json.Unmarshal([]byte(text), &links); err != nil || len(links) != 1 || len(links[0].Addr) == 0 || links[0].Addr[0].Local != kit.StackAddr {
		t.Errorf("ip addr by exec (%v): %s", err, text)
	}
	if got := kit.OK(t, kit.Limit, k.Inside("ip", "addr")); strings.Contains(got, "br0") {
		t.Errorf("ip addr by exec shows the host:\n%s", got)
	}
	if got := kit.OK(t, kit.Limit, k.Inside("ss", "-tinlH")); !strings.Contains(got, ":8080") {
		t.Errorf("ss by exec misses the target's listener: %q", got)
	}
	if got := kit.OK(t, kit.Limit, k.Inside("cat", "/etc/resolv.conf")); !strings.Contains(got, "192.0.2.53") {
		t.Errorf("resolv.conf by exec: %q", got)
	}
	if got := kit.OK(t, kit.Limit, k.Inside("getent", "hosts", "web.example")); !strings.Contains(got, kit.ServerAddr) {
		t.Errorf("a name of --add-host by exec: %q", got)
	}

	// The two programs talk to each other over the stack's loopback.
	talk := `import socket; s = socket.create_connection(("127.0.0.1", 8080), 10); s.sendall(b"over lo"); print("ready", flush=True); input()`
	cmd := k.Inside("/usr/bin/python3", "-c", talk)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := kit.Start(t, cmd)
	if got := k.Say(`(lambda c: c.recv(7))(keep["l"].accept()[0])`); got != "b'over lo'" {
		t.Errorf("the target hears %s", got)
	}
	kit.WaitFor(t, "the program", kit.Limit, func() bool { out, _ := p.Output(); return out != "" })
	// netstat must attribute the program's sockets to the program.
	var sockets []struct {
		Remote string `json:"remote"`
		Pid    int    `json:"pid"`
	}
	if err := json.Unmarshal([]byte(kit.Lklctl(t, "-n", k.Name, "-o", "json", "netstat")), &sockets); err != nil {
		t.Fatal(err)
	}
	owned := false
	for _, x := range sockets {
		if x.Remote != "127.0.0.1:8080" {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", x.Pid))
		owned = strings.Contains(string(line), "over lo")
	}
	if !owned {
		t.Errorf("netstat does not show whose the socket is: %+v", sockets)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	p.Wait(kit.Limit)

	cmd = k.Inside("sh", "-c", `pwd; umask; echo "$MARK"; cat; ls /proc/self/fd | wc -l`)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "MARK=of the caller")
	cmd.Stdin = strings.NewReader("in\n")
	if got := kit.OK(t, kit.Limit, cmd); got != dir+"\n0022\nof the caller\nin\n4\n" {
		t.Errorf("folder, umask, environment, input, descriptors: %q", got)
	}
	if r := k.End(); r.Status != 0 {
		t.Errorf("the target: %v", r)
	}
	before.Same()
}

// TestExecAccount checks that the run's account includes programs of `lklctl exec`.
func TestExecAccount(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	k := s.Talk("-v", "--stack", "vanilla", "--if", s.TapIf())
	k.Say("1")
	kit.OK(t, kit.Limit, k.Inside("curl", "-sS", kit.ServerURL+"/hello"))
	r := k.End()
	if !strings.Contains(r.Stderr, "curl(") || strings.Contains(r.Stderr, "lklhost(") {
		t.Errorf("the account should tell of curl, and of nothing of ours: %s", r.Stderr)
	}
}

// TestExecStatus checks that `lklctl exec` returns the program's own exit status, as
// lklrun does.
func TestExecStatus(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	for _, code := range []int{0, 1, 2, 125, 255} {
		if r := kit.Run(t, kit.Limit, k.Inside("sh", "-c", fmt.Sprintf("exit %d", code))); r.Status != code || r.Stderr != "" {
			t.Errorf("exit %d became %v", code, r)
		}
	}
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGSEGV} {
		if r := kit.Run(t, kit.Limit, k.Inside("sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig))); r.Signal != sig || r.Stderr != "" {
			t.Errorf("signal %d became %v", sig, r)
		}
	}
	if r := kit.Run(t, kit.Limit, k.Inside("sh", "-c", "kill -9 $$")); r.Status != 137 {
		t.Errorf("SIGKILL became %v", r)
	}
	for want, command := range map[int]string{127: "no-such-command-here", 126: "/etc/passwd"} {
		r := kit.Run(t, kit.Limit, k.Inside(command))
		if r.Status != want {
			t.Errorf("%s: %v, want status %d", command, r, want)
		}
		oneLineOf(t, r, command)
	}
	r := kit.Run(t, kit.Limit, k.Inside(append([]string{"true"}, slices.Repeat([]string{strings.Repeat("x", 120_000)}, 10)...)...))
	if r.Status != 125 {
		t.Errorf("an argument that is too long: %v", r)
	}
	oneLineOf(t, r)
	if got := k.Say("2"); got != "2" {
		t.Errorf("the target says %s", got)
	}
	k.End()
}

// TestExecSignals checks that signals reach the program, and that a terminal's signals
// reach the program's whole process group.
func TestExecSignals(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGWINCH, unix.SIGUSR1} {
		p := startInside(k, "/usr/bin/python3", "-uc", fmt.Sprintf(`import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [%d])
print("ready")
signal.sigwait([%d])
raise SystemExit(40 + %d)`, sig, sig, sig))
		p.Signal(sig)
		if r := p.Wait(kit.Limit); r.Status != 40+int(sig) {
			t.Errorf("%v: %v", sig, r)
		}
	}
	p := startInside(k, "sh", "-c", "echo ready; exec sleep 1000") // exec, because dash misses a signal that arrives just before it forks
	p.Signal(unix.SIGINT)
	if r := p.Wait(kit.Limit); r.Signal != unix.SIGINT {
		t.Errorf("Ctrl-C of a shell that became sleep: %v", r)
	}
	// Ctrl-Z stops lklctl and the program. After SIGCONT, both continue.
	cmd := k.Inside("sh", "-c", "echo ready $$; read x; exit 9")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p = kit.Start(t, cmd)
	var out string
	kit.WaitFor(t, "the reader", kit.Limit, func() bool { out, _ = p.Output(); return strings.HasSuffix(out, "\n") })
	pid, err := strconv.Atoi(strings.Fields(out)[1])
	if err != nil {
		t.Fatal(err)
	}
	p.Signal(unix.SIGTSTP)
	for _, who := range []int{pid, p.Pid()} {
		kit.WaitFor(t, "a stop", kit.Limit, func() bool { return state(who) == "T" })
	}
	p.Signal(unix.SIGCONT)
	for _, who := range []int{pid, p.Pid()} {
		kit.WaitFor(t, "going on", kit.Limit, func() bool { return state(who) != "T" })
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(kit.Limit); r.Status != 9 {
		t.Errorf("after Ctrl-Z and going on: %v", r)
	}
	k.End()
	before.Same()
}

// state returns the state of a process as one letter, see proc_pid_stat(5).
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

// TestExecWhere checks `lklctl exec` with no instance, with two instances, and with one
// that has ended.
func TestExecWhere(t *testing.T) {
	s := kit.NewSite(t)
	run := func(args ...string) kit.Result {
		t.Helper()
		return kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), append([]string{"exec"}, args...)...))
	}
	if r := run("true"); r.Status != 125 {
		t.Errorf("without an instance: %v", r)
	} else {
		oneLineOf(t, r, "no instance is running")
	}
	a, b := s.Talk("--if", s.TapIf()), s.Talk("--if", "user")
	a.Say("1")
	b.Say("1")
	if r := run("true"); r.Status != 2 {
		t.Errorf("with two instances and no -n: %v", r)
	} else {
		oneLineOf(t, r, "-n")
	}
	for k, want := range map[*kit.Talker]string{a: kit.StackAddr, b: "192.168.127."} {
		if got := kit.OK(t, kit.Limit, k.Inside("ip", "-4", "addr", "show", "eth0")); !strings.Contains(got, want) {
			t.Errorf("%s has not %s: %s", k.Name, want, got)
		}
	}
	a.End()
	if r := kit.Run(t, kit.Limit, a.Inside("true")); r.Status != 125 {
		t.Errorf("after the end: %v", r)
	} else {
		oneLineOf(t, r, fmt.Sprintf("no instance %q is running; running instances: %s", a.Name, b.Name))
	}
	if r := run("sh", "-c", "exit 5"); r.Status != 5 {
		t.Errorf("one is left, no -n: %v", r)
	}
	b.End()
}

// TestExecEnds checks that the end of a run ends its programs of `lklctl exec`,
// whatever the cause, and that lklctl reports it in one line.
func TestExecEnds(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for _, tt := range []struct {
		name   string
		end    func(k *kit.Talker)
		status int
		names  []string
	}{
		{"target", func(k *kit.Talker) { k.End() }, 137, []string{"has ended"}},
		{"lklrun", func(k *kit.Talker) { k.Proc.Signal(unix.SIGKILL) }, 137, []string{"has ended"}},
		{"lklhost", func(k *kit.Talker) {
			if err := unix.Kill(kit.ProcessOf(t, k, "host_pid"), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, 125, []string{"lklhost has ended"}},
		{"panic", func(k *kit.Talker) {
			ctx, cancel := context.WithTimeout(context.Background(), kit.Limit)
			defer cancel()
			c, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", k.Name, "ctl.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.WriteFile(ctx, "/proc/sysrq-trigger", []byte("c")) // the kernel panics, so no answer arrives
		}, 125, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := s.In(t).Talk("--if", s.TapIf())
			k.Say("1")
			p := startInside(k, "sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & echo ready; exec sleep 1000")
			tt.end(k)
			r := p.Wait(kit.Limit)
			if r.Status != tt.status {
				t.Errorf("%v, want status %d", r, tt.status)
			}
			oneLineOf(t, r, append(tt.names, k.Name)...)
			k.Proc.Wait(kit.Limit)
			before.Settles(kit.Limit)
		})
	}
}

// TestExecClientKilled kills lklctl. Its program must get a signal, and then SIGKILL. The
// run must continue.
func TestExecClientKilled(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	during := kit.Take(t, s.Server)
	for _, program := range []string{
		"echo ready; exec sleep 1000",
		"trap '' TERM HUP; echo ready; exec sleep 1000", // this program gets SIGKILL after five seconds
	} {
		p := startInside(k, "sh", "-c", program)
		if err := unix.Kill(p.Pid(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		during.Settles(15 * time.Second)
	}
	if got := kit.OK(t, kit.Limit, k.Inside("echo", "again")); got != "again\n" {
		t.Errorf("the next program: %q", got)
	}
	k.End()
	before.Same()
}

// TestExecMany starts many programs at once and checks that none is left.
func TestExecMany(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	procs := map[int]*kit.Proc{}
	for i := range 24 {
		procs[i] = kit.Start(t, k.Inside("sh", "-c", fmt.Sprintf("exit %d", i)))
	}
	for i, p := range procs {
		if r := p.Wait(kit.Limit); r.Status != i {
			t.Errorf("exit %d became %v", i, r)
		}
	}
	k.End()
	before.Same()
}

// TestExecNoChildOfTheTarget checks that the target gets no children that it did not
// create, so that `wait` in a shell returns.
func TestExecNoChildOfTheTarget(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--if", s.TapIf())
	if got := k.Say(`__import__("os").wait()`); !strings.HasPrefix(got, "ChildProcessError") {
		t.Errorf("wait in the target: %s", got)
	}
	kit.OK(t, kit.Limit, k.Inside("true"))
	if got := k.Say(`__import__("os").wait()`); !strings.HasPrefix(got, "ChildProcessError") {
		t.Errorf("wait in the target after exec: %s", got)
	}
	k.End()
}

// TestExecUnprivileged checks `lklctl exec` without root. Root may also use a user's
// instance, with that user's rights.
func TestExecUnprivileged(t *testing.T) {
	kit.NewSite(t)
	bin, run := kit.PublicBin(t), kit.Dir(t)
	if err := os.Chown(run, kit.OrdinaryUID, kit.OrdinaryUID); err != nil {
		t.Fatal(err)
	}
	before := kit.Take(t)
	p := kit.Start(t, kit.AsUser(exec.Command(bin+"/lklrun", "-q", "--name", "u", "--", "sh", "-c", "echo ready; exec sleep 1000"), run))
	kit.WaitFor(t, "the run", kit.Limit, func() bool { out, _ := p.Output(); return out != "" })
	inside := func(args ...string) *exec.Cmd {
		return kit.AsUser(exec.Command(bin+"/lklctl", append([]string{"exec", "--"}, args...)...), run)
	}
	if got := kit.OK(t, kit.Limit, inside("ip", "-4", "addr", "show", "eth0")); !strings.Contains(got, "192.168.127.") {
		t.Errorf("ip addr: %s", got)
	}
	got := kit.OK(t, kit.Limit, inside("grep", "-E", "^(Uid|CapEff|NoNewPrivs|Seccomp):", "/proc/self/status"))
	want := fmt.Sprintf("Uid: %[1]d %[1]d %[1]d %[1]d CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2", kit.OrdinaryUID)
	if strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("its rights: %q, want %q", got, want)
	}
	p.Signal(unix.SIGTERM)
	p.Wait(kit.Limit)
	before.Settles(kit.Limit)
}

// TestExecDmesg checks that a program of `lklctl exec` sees the kernel log of its stack,
// and never the host's kernel log.
func TestExecDmesg(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "dmesg")
	var u unix.Utsname
	kit.Must(t, unix.Uname(&u))
	host := unix.ByteSliceToString(u.Release[:])
	bin := kit.PublicBin(t)
	root := func(name string, args ...string) *exec.Cmd { return exec.Command(bin+"/"+name, args...) }
	for _, who := range []struct {
		name    string
		command func(name string, args ...string) *exec.Cmd
		flags   []string
	}{
		{"root", root, nil},
		{"user", func(name string, args ...string) *exec.Cmd { return kit.AsUser(root(name, args...), "") }, nil},
		{"--user", root, []string{"--user", "nobody"}},
		{"vanilla", root, []string{"--stack", "vanilla"}},
	} {
		k := s.TalkBy(func(args ...string) *exec.Cmd {
			return who.command("lklrun", append([]string{"-q", "--if", "user"}, args...)...)
		}, who.flags...)
		k.Say("1")
		for _, args := range [][]string{{"dmesg"}, {"dmesg", "-S"}} {
			got := kit.OK(t, kit.Limit, who.command("lklctl", append([]string{"-n", k.Name, "exec", "--"}, args...)...))
			if !strings.Contains(got, "Linux version ") || !strings.Contains(got, "-lkl") || strings.Contains(got, host) {
				t.Errorf("%s: %s shows %.300s", who.name, args, got)
			}
		}
		for _, file := range []string{"/dev/kmsg", "/proc/kmsg"} {
			if got := k.Say(`open(%q, "rb", 0).read(100)`, file); !strings.HasPrefix(got, "OSError [Errno 6]") && !strings.HasPrefix(got, "PermissionError") {
				t.Errorf("%s: %s: %s", who.name, file, got)
			}
		}
		k.End()
	}
	r := kit.Run(t, kit.Limit, kit.Lklrun("-q", "--engine", "preload", "--if", "user", "--", "dmesg"))
	if r.Status != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "Operation not permitted") {
		t.Errorf("--engine preload: %v", r)
	}
}

// TestPrompt checks that the prompt of a shell at a terminal shows the instance, and that
// a shell without a terminal has no hint.
func TestPrompt(t *testing.T) {
	t.Parallel()
	name := kit.NewName()
	term := terminal.New(t, 100, 24, kit.Lklrun("-q", "--name", name, "--", "bash", "--norc"))
	term.Has("(lklrun:" + name + ") ")
	inner := terminal.New(t, 100, 24, exec.Command(kit.Bin("lklctl"), "exec", name, "--", "sh"))
	inner.Has("(lklrun:" + name + ") # ")
	inner.Press("exit\n")
	inner.Proc.Wait(kit.Limit)
	if out := kit.OK(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "exec", name, "--", "sh", "-c", "printenv PS1; echo $LKLRUN_NAME")); out != name+"\n" {
		t.Errorf("without a terminal: %q", out)
	}
	term.Press("exit\n")
	term.Proc.Wait(kit.Limit)
}
