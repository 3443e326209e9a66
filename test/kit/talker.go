// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// A Talker is a python3 under lklrun that executes lines from its standard input, so
// that tests can open connections at chosen moments.
type Talker struct {
	T    *testing.T
	Name string
	Proc *Proc
	in   io.WriteCloser
	out  *bufio.Reader
}

//go:embed testdata/talker.py
var TalkerProgram string

// Talk starts a talker; flags precede its own name.
func (s *Site) Talk(flags ...string) *Talker {
	s.T.Helper()
	return s.TalkBy(Lklrun, flags...)
}

// TalkBy is like Talk, with a command line of lklrun for another user.
func (s *Site) TalkBy(lklrun func(args ...string) *exec.Cmd, flags ...string) *Talker {
	s.T.Helper()
	name := NewName()
	args := append([]string{"--name", name}, flags...)
	return StartTalker(s.T, name, lklrun(append(args, "--", "/usr/bin/python3", "-uc", TalkerProgram)...))
}

// StartTalker starts cmd, which runs a talker under an instance name.
func StartTalker(t *testing.T, name string, cmd *exec.Cmd) *Talker {
	t.Helper()
	k := &Talker{T: t, Name: name}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	cmd.Stdout = w
	k.in, k.out = in, bufio.NewReader(out)
	k.Proc = Start(t, cmd)
	go func() {
		Within(10*Limit, func() bool { return !k.Proc.Running() })
		_ = w.CloseWithError(io.ErrUnexpectedEOF) // ends a wait for an answer
	}()
	return k
}

// Say evaluates a Python expression in the target.
func (k *Talker) Say(format string, args ...any) string {
	k.T.Helper()
	if _, err := fmt.Fprintf(k.in, format+"\n", args...); err != nil {
		k.T.Fatalf("talking to the target: %v", err)
	}
	answer, err := k.out.ReadString('\n')
	if err != nil {
		_, errs := k.Proc.Output()
		k.T.Fatalf("hearing the target: %v: %s", err, errs)
	}
	return strings.TrimSuffix(answer, "\n")
}

// Connect opens a connection and returns its congestion control.
func (k *Talker) Connect(key, addr string, port int) string {
	k.T.Helper()
	if got := k.Say(`keep.__setitem__(%q, socket.create_connection((%q, %d), 10))`, key, addr, port); got != "None" {
		k.T.Fatalf("connecting to %s: %s", addr, got)
	}
	return strings.Trim(k.Say(`keep[%q].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()`, key), "'")
}

// End lets the target exit normally, and returns the result of the run.
func (k *Talker) End() Result {
	k.T.Helper()
	if err := k.in.Close(); err != nil {
		k.T.Fatal(err)
	}
	return k.Proc.Wait(Limit)
}

// Inside is a command line of `lklctl exec` in the talker's instance.
func (k *Talker) Inside(args ...string) *exec.Cmd {
	return exec.Command(Bin("lklctl"), append([]string{"exec", "-n", k.Name, "--"}, args...)...)
}

// Refused runs a verb that must end with the status and one line that contains want.
func (k *Talker) Refused(status int, want string, args ...string) {
	k.T.Helper()
	r := Run(k.T, Limit, exec.Command(Bin("lklctl"), append([]string{"-n", k.Name}, args...)...))
	if r.Status != status || len(Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, want) || r.Stdout != "" {
		k.T.Errorf("lklctl %q: %v\nwant status %d, %s", args, r, status, want)
	}
}

// KillAll kills lklrun, lklhost and the target, and returns their process ids.
func (k *Talker) KillAll() []int {
	k.T.Helper()
	pids := []int{ProcessOf(k.T, k, "pid"), ProcessOf(k.T, k, "host_pid"), ProcessOf(k.T, k, "target_pid")}
	for _, pid := range pids { // stop them first, so that none sees the end of another
		Pause(k.T, pid, Limit)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			k.T.Fatal(err)
		}
	}
	k.Proc.Wait(Limit)
	return pids
}

// Crash makes the stack's kernel panic.
func Crash(t *testing.T, k *Talker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	c, err := stackconn.Dial(ctx, filepath.Join("/run/lklrun", k.Name, "ctl.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Command c of sysrq-trigger crashes the kernel on purpose, see
	// Documentation/admin-guide/sysrq.rst. That kernel is the stack, so no answer
	// arrives.
	_ = c.WriteFile(ctx, "/proc/sysrq-trigger", []byte("c"))
}
