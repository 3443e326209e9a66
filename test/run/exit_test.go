// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit/terminal"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestExitStatus checks that every exit status is the target's own.
func TestExitStatus(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	const atOnce = 4
	var wg sync.WaitGroup
	want := make(chan int)
	for range atOnce {
		wg.Go(func() {
			for code := range want {
				r := kit.Run(t, kit.Limit, kit.Lklrun("--if", "user", "--", "sh", "-c", fmt.Sprintf("exit %d", code)))
				if r.Status != code || r.Stdout != "" {
					t.Errorf("exit %d became %v", code, r)
				}
			}
		})
	}
	for code := range 256 {
		want <- code
	}
	close(want)
	wg.Wait()
	before.Same()
}

// TestCannotExecute checks commands that cannot be executed. lklrun must exit with the
// statuses of env(1), and print a line with the reason.
func TestCannotExecute(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for want, command := range map[int]string{127: "no-such-command-here", 126: "/etc/passwd"} {
		r := kit.Run(t, kit.Limit, s.OnTap(command))
		if r.Status != want {
			t.Errorf("%s: %v, want status %d", command, r, want)
		}
		if said := kit.Lines(r.Stderr); len(said) != 1 || !strings.Contains(said[0], command) {
			t.Errorf("%s: not one line that names it: %q", command, r.Stderr)
		}
	}
	before.Same()
}

// TestKilledBySignal checks that a shell sees the status 128 + N if signal N ends the
// target.
func TestKilledBySignal(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGHUP, unix.SIGINT, unix.SIGABRT} {
		cmd := s.OnTap("sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig))
		r := kit.Run(t, kit.Limit, exec.Command("sh", append([]string{"-c", `"$@"; exit $?`, "sh"}, cmd.Args...)...))
		if want := 128 + int(sig); r.Status != want {
			t.Errorf("signal %d: a shell sees %v, want %d", sig, r, want)
		}
	}
	before.Same()
}

// TestSignalsPassOn checks that signals to lklrun reach the target, which decides how
// to react.
func TestSignalsPassOn(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGUSR1, unix.SIGHUP} {
		p := kit.Start(t, s.OnTap("/usr/bin/python3", "-uc", fmt.Sprintf(`
import signal, sys
signal.signal(%d, lambda *a: sys.exit(42))
print("ready")
while True: signal.pause()`, sig)))
		kit.WaitFor(t, "the target", kit.Limit, func() bool { out, _ := p.Output(); return out == "ready\n" })
		p.Signal(sig)
		if r := p.Wait(kit.Limit); r.Status != 42 {
			t.Errorf("signal %v: %v, want the handler's status 42", sig, r)
		}
	}
	before.Same()
}

// interrupted runs a command as a terminal's foreground job and types Ctrl-C when it
// has printed "ready". It returns the command's result and the terminal's output.
func interrupted(t *testing.T, cmd *exec.Cmd) (kit.Result, string) {
	t.Helper()
	p, master, said, closed := foreground(t, cmd)
	kit.WaitFor(t, "the target", kit.Limit, func() bool { return strings.Contains(said(), "ready\r\n") || !p.Running() })
	if _, err := master.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	r := p.Wait(kit.Limit)
	select {
	case <-closed:
	case <-time.After(kit.Limit):
		t.Errorf("%v: somebody still has the terminal open", cmd.Args)
	}
	return r, said()
}

// TestCtrlC checks that Ctrl-C on a real terminal has the same effect as without
// lklrun.
func TestCtrlC(t *testing.T) {
	s := kit.NewSite(t)
	for _, text := range []string{
		`echo ready; exec sleep 60`,
		// The child prints "ready". If the shell were about to fork when the signal
		// arrives, it would wait for the child before it runs its trap.
		`trap "echo trapped; exit 9" INT; sh -c "echo ready; exec sleep 60"; echo not reached`,
		`trap "" INT; echo ready; sleep 1; echo survived`,
		`exec /usr/bin/python3 -uc '
import time, sys
try:
    print("ready")
    while True: time.sleep(0.02) # a signal just before a long one would wait for its end
except KeyboardInterrupt:
    print("bye"); sys.exit(7)'`,
		`sh -c "echo ready; exec sleep 60"; echo after`,
		// The target has the terminal, including job control.
		`test -t 0 && test -t 1 && test -t 2 && stty size >/dev/null && test "$(ps -o tpgid= -p $$)" -gt 0 && echo tty; echo ready; read x || exit 3`,
	} {
		want, shownWant := interrupted(t, exec.Command("sh", "-c", text))
		before := kit.Take(t, s.Server)
		got, shown := interrupted(t, s.OnTap("sh", "-c", text))
		if got.Status != want.Status || got.Signal != want.Signal {
			t.Errorf("%s\nunder lklrun: status %d signal %d\nwithout: status %d signal %d", text, got.Status, got.Signal, want.Status, want.Signal)
		}
		if shown != shownWant {
			t.Errorf("%s\nunder lklrun the terminal shows %q\nwithout: %q", text, shown, shownWant)
		}
		before.Same()
	}
}

// TestPipes checks a standard input that closes early, and an output that no process
// reads. Both must behave as without lklrun.
func TestPipes(t *testing.T) {
	s := kit.NewSite(t)
	const text = "yes; echo $? >&2"
	unread := func(cmd *exec.Cmd) kit.Result {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = w
		p := kit.Start(t, cmd)
		if err := errors.Join(w.Close(), r.Close()); err != nil {
			t.Fatal(err)
		}
		return p.Wait(kit.Limit)
	}
	want, got := unread(exec.Command("sh", "-c", text)), unread(s.OnTap("sh", "-c", text))
	if got.Status != want.Status || got.Stderr != want.Stderr {
		t.Errorf("a pipe that nobody reads, under lklrun: %v\nwithout: %v", got, want)
	}
	// The target must see the end of the file, and unread input must stay in the pipe.
	head := s.OnTap("sh", "-c", "read a; echo $a")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	head.Stdin = r
	if _, err := w.WriteString("one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	res := kit.Run(t, kit.Limit, head)
	rest, err := io.ReadAll(r)
	if err != nil || res.Stdout != "one\n" || string(rest) != "two\n" {
		t.Errorf("the target read %q and left %q (%v)", res.Stdout, rest, err)
	}
}

// foreground starts a command as a terminal's foreground job. said returns the terminal's
// output so far; closed ends when nobody has the terminal open any more.
func foreground(t *testing.T, cmd *exec.Cmd) (p *kit.Proc, master *os.File, said func() string, closed <-chan struct{}) {
	t.Helper()
	master, slave := terminal.Open(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p = kit.Start(t, cmd)
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shown strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			mu.Lock()
			shown.Write(buf[:n])
			mu.Unlock()
			if err != nil { // EIO means that the other side is closed
				return
			}
		}
	}()
	return p, master, func() string { mu.Lock(); defer mu.Unlock(); return shown.String() }, read
}

//go:embed testdata/count_signals.py
var countSignals string

// TestInterruptAlone checks that SIGINT and SIGQUIT to lklrun alone reach a target in the
// foreground once. The terminal's signals must also reach the target once.
func TestInterruptAlone(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGQUIT} {
		p, master, said, _ := foreground(t, s.OnTap("/usr/bin/python3", "-uc", countSignals))
		see := func(text string) {
			t.Helper()
			kit.WaitFor(t, text, kit.Limit, func() bool { return strings.Contains(said(), text) || !p.Running() })
		}
		see("ready")
		p.Signal(sig)
		see("got 1")
		if _, err := master.Write([]byte{map[syscall.Signal]byte{unix.SIGINT: 3, unix.SIGQUIT: 28}[sig]}); err != nil {
			t.Fatal(err)
		}
		see("got 2")
		// Wait, because a pending signal would absorb the next one.
		kit.WaitFor(t, "lklrun's taking the terminal's signal", kit.Limit, func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
			return err == nil && strings.Contains(string(text), "\nShdPnd:\t0000000000000000\n")
		})
		p.Signal(sig)
		see("got 3")
		p.Signal(unix.SIGTERM)
		if r := p.Wait(kit.Limit); r.Status != 42 || strings.Count(said(), "got") != 3 {
			t.Errorf("signal %d: %v; the terminal shows %q", sig, r, said())
		}
	}
	before.Same()
}

// TestJobControl checks a shell's job control: Ctrl-Z stops lklrun and its target, fg
// continues both.
func TestJobControl(t *testing.T) {
	s := kit.NewSite(t)
	cmd := exec.Command("bash", "--norc", "--noprofile", "-i")
	cmd.Env = append(os.Environ(), "PS1=prompt> ", "TERM=dumb")
	p, master, said, _ := foreground(t, cmd)
	at := 0
	see := func(text string) {
		t.Helper()
		kit.WaitFor(t, text, kit.Limit, func() bool { return strings.Contains(said()[at:], text) || !p.Running() })
		at += max(strings.Index(said()[at:], text), 0)
	}
	typed := func(text string) {
		t.Helper()
		if _, err := master.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	see("prompt> ")
	run := s.OnTap("sh", "-c", "'echo pid $$ is ready; read line; echo got $line'")
	typed(strings.Join(run.Args, " ") + "\n")
	see(" is ready\r")
	var pid int
	shown := said()
	if _, err := fmt.Sscanf(shown[strings.LastIndex(shown, "pid "):], "pid %d is", &pid); err != nil {
		t.Fatalf("%q: %v", shown, err)
	}
	state := func() string {
		_, rest, _ := strings.Cut(readFile(t, fmt.Sprintf("/proc/%d/stat", pid)), ") ")
		return rest[:1]
	}
	typed("\x1a")
	see("Stopped")
	kit.WaitFor(t, "the target's stop", kit.Limit, func() bool { return state() == "T" })
	typed("fg\n")
	kit.WaitFor(t, "the target's going on", kit.Limit, func() bool { return state() != "T" })
	typed("word\n")
	see("got word")
	see("prompt> ")
	typed("exit\n")
	if r := p.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("the shell: %v; the terminal shows %q", r, said())
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestInsideItself checks that lklrun refuses to run inside itself: a process tree can
// have only one supervisor of system calls.
func TestInsideItself(t *testing.T) {
	s := kit.NewSite(t)
	r := kit.Run(t, kit.Limit, s.OnTap(kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--engine", "supervise", "--", "true"))
	if said := kit.Lines(r.Stderr); r.Status != 2 || len(said) != 1 || !strings.Contains(said[0], "does not run inside lklrun") || !strings.Contains(said[0], "lklctl exec") {
		t.Error(r)
	}
}
