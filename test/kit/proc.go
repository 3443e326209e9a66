// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Proc is a started command whose output is collected.
type Proc struct {
	t        testing.TB
	cmd      *exec.Cmd
	out, err syncBuffer
	done     chan struct{}
	waitErr  error
}

// Result describes how a command ended.
type Result struct {
	Status         int            // exit status; -1 if a signal killed it
	Signal         syscall.Signal // 0 if it exited
	Stdout, Stderr string
	Took           time.Duration
}

// syncBuffer is a buffer that can be read while a command writes to it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Start starts a command and collects its output, unless the caller has set Stdout or
// Stderr. The command ends with the test.
func Start(t testing.TB, cmd *exec.Cmd) *Proc {
	t.Helper()
	p := &Proc{t: t, cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.err
	}
	// A grandchild that keeps the pipe open must not block Wait.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", strings.Join(cmd.Args, " "), err)
	}
	go func() {
		p.waitErr = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		// Send SIGTERM first: a killed master, such as nginx's, leaves its workers
		// running.
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		if !Within(2*time.Second, func() bool { return !p.Running() }) {
			_ = cmd.Process.Kill()
		}
		<-p.done
	})
	return p
}

// Pid returns the command's process id.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Output returns the output so far.
func (p *Proc) Output() (stdout, stderr string) { return p.out.String(), p.err.String() }

// Signal sends the command a signal.
func (p *Proc) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		out, errs := p.Output()
		p.t.Fatalf("sending %v to %s: %v\nstdout: %s\nstderr: %s", s, strings.Join(p.cmd.Args, " "), err, out, errs)
	}
}

// Running reports whether the command has not ended yet.
func (p *Proc) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the end of the command. After limit it fails the test and prints the
// output so far.
func (p *Proc) Wait(limit time.Duration) Result {
	p.t.Helper()
	began := time.Now()
	select {
	case <-p.done:
	case <-time.After(limit):
		out, errs := p.Output()
		p.t.Fatalf("%s: still running after %v\nstdout: %s\nstderr: %s", strings.Join(p.cmd.Args, " "), limit, out, errs)
	}
	r := Result{Status: p.cmd.ProcessState.ExitCode(), Stdout: p.out.String(), Stderr: p.err.String(), Took: time.Since(began)}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Signal = ws.Signal()
	}
	return r
}

// Run starts a command and waits for its end.
func Run(t testing.TB, limit time.Duration, cmd *exec.Cmd) Result {
	t.Helper()
	return Start(t, cmd).Wait(limit)
}

// OK runs a command that must exit with status 0, and returns its standard output.
func OK(t testing.TB, limit time.Duration, cmd *exec.Cmd) string {
	t.Helper()
	r := Run(t, limit, cmd)
	if r.Status != 0 {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), r)
	}
	return r.Stdout
}

// String describes the end of a command for a message.
func (r Result) String() string {
	end := fmt.Sprintf("status %d", r.Status)
	if r.Signal != 0 {
		end = fmt.Sprintf("signal %d (%v)", r.Signal, r.Signal)
	}
	return fmt.Sprintf("%s\nstdout: %s\nstderr: %s", end, r.Stdout, r.Stderr)
}

// OrdinaryUID is a user ID without name, home or privileges.
const OrdinaryUID = 54321

// AsUser runs cmd as an ordinary user with a minimal environment: it has an
// XDG_RUNTIME_DIR only if runtimeDir is given.
func AsUser(cmd *exec.Cmd, runtimeDir string) *exec.Cmd {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: OrdinaryUID, Gid: OrdinaryUID}
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent", "LANG=C.UTF-8"}
	if runtimeDir != "" {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+runtimeDir)
	}
	cmd.Dir = "/"
	return cmd
}

// PublicBin copies bin/ to a directory that an ordinary user can read, because the
// repository may be in a home directory. It returns the path of the copy.
func PublicBin(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(Dir(t), "bin")
	Host.Run(t, "cp", "-rL", Bin(""), bin)
	Host.Run(t, "chmod", "-R", "go+rX", bin)
	return bin
}

// Pause stops a process and returns when all its threads have stopped: a thread on
// another CPU continues for a moment after the signal.
func Pause(t testing.TB, pid int, limit time.Duration) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatalf("stopping process %d: %v", pid, err)
	}
	WaitFor(t, fmt.Sprintf("the stop of process %d", pid), limit, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, thread := range threads {
			if state := stateIn(thread); state != 0 && !strings.ContainsRune("TZX", rune(state)) {
				return false
			}
		}
		return err == nil
	})
}

// Alive reports whether a process exists and is not a zombie.
func Alive(pid int) bool {
	state := stateIn(fmt.Sprintf("/proc/%d/stat", pid))
	return state != 0 && state != 'Z' && unix.Kill(pid, 0) == nil
}

// stateIn returns the state in a stat file of procfs, 0 if it does not exist.
func stateIn(path string) byte {
	stat, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return (rest + "\x00")[0]
}

// HeapKB returns the resident anonymous memory of an lklhost, except the largest mapping, which is
// the stack's own memory.
func HeapKB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	sum, size, arena, largest := 0, 0, 0, 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		switch f[0] {
		case "Size:":
			size = n
		case "Anonymous:":
			sum += n
			if size > largest {
				arena, largest = n, size
			}
		}
	}
	return sum - arena
}
