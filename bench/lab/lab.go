// SPDX-License-Identifier: Apache-2.0

// Package lab sets up what the benchmarks need: namespaces, wires, servers and command
// lines. It requires Linux and root. It runs inside the benchmarks' own namespaces;
// when these end, the kernel removes everything in them.
package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/bench/table"
)

// Timeouts.
const (
	SetupLimit = 10 * time.Second // a set-up command
	RunLimit   = 70 * time.Second // one measurement; the timeout of lklbench itself is 60 s
)

// A Form is the size of a run, quick or full.
type Form struct {
	Name   string
	Rounds int
	Length time.Duration // duration of one bulk transfer
	Count  int           // number of round trips
	Full   bool
}

// A Lab builds one scenario after another.
type Lab struct {
	Root string // root of the repository
	Form Form

	cpu      *Account
	perf     *Perf // the current recording, or nil
	cleanups []func()
	mu       sync.Mutex
	natives  map[string]string
	stalls   int // repeated measurements with the old library
}

// New makes a lab for the repository in root. It mounts an empty /run, so that the
// names of namespaces and the run directories are the lab's own.
func New(ctx context.Context, root string, form Form, account *Account) (*Lab, error) {
	l := &Lab{Root: root, Form: form, cpu: account, natives: map[string]string{}}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return nil, fmt.Errorf("mounting /run: %w", err)
	}
	if err := l.Run(ctx, "ip link set lo up"); err != nil {
		return nil, err
	}
	if _, err := l.Native(ctx, "lklbench", "-ldl"); err != nil {
		return nil, err
	}
	return l, nil
}

// Cleanup registers f to be called at the end of the scenario, in reverse order of
// registration.
func (l *Lab) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

// Close ends a scenario.
func (l *Lab) Close() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
	l.cleanups = nil
}

// Native builds bench/native/NAME.c once and returns the program's path.
func (l *Lab) Native(ctx context.Context, name string, flags ...string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if path, ok := l.natives[name]; ok {
		return path, nil
	}
	path := filepath.Join(l.Root, "build", "bench", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	argv := append([]string{"gcc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(l.Root, "third_party/lkl/include"),
		"-o", path, filepath.Join(l.Root, "bench/native", name+".c")}, flags...)
	if _, err := l.Output(ctx, argv...); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	l.natives[name] = path
	return path, nil
}

// Bench returns the path of lklbench.
func (l *Lab) Bench() string { return filepath.Join(l.Root, "build", "bench", "lklbench") }

// Bin returns the path of a program of the project.
func (l *Lab) Bin(name string) string { return filepath.Join(l.Root, "bin", name) }

// Milliseconds returns the length of one bulk transfer, for lklbench.
func (l *Lab) Milliseconds() string { return strconv.FormatInt(l.Form.Length.Milliseconds(), 10) }

// Count returns the number of round trips, for lklbench.
func (l *Lab) Count() string { return strconv.Itoa(l.Form.Count) }

// Run runs set-up commands, each a line that is split at spaces.
func (l *Lab) Run(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if _, err := l.output(ctx, SetupLimit, strings.Fields(line)); err != nil {
			return fmt.Errorf("setting up: %w", err)
		}
	}
	return nil
}

// Output runs a command with a time limit and returns its output.
func (l *Lab) Output(ctx context.Context, argv ...string) (string, error) {
	return l.output(ctx, RunLimit, argv)
}

func (l *Lab) output(ctx context.Context, limit time.Duration, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := l.command(ctx, argv)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (ended after %v)", err, limit)
		}
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// command returns a command that inherits the account as descriptor 3 and runs in a
// process group of its own.
func (l *Lab) command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if l.cpu != nil {
		cmd.ExtraFiles = []*os.File{l.cpu.file}
	}
	if l.perf != nil {
		cmd.Env = append(os.Environ(), windowEnv+"=1")
	}
	return cmd
}

// stallsMost limits how often a measurement with the old library is repeated.
const stallsMost = 4

// stalled reports whether the old library stalled until the measurement timed out. Its
// kernel stalls now and then. stalled counts these stalls.
func (l *Lab) stalled(argv []string, err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !slices.Contains(argv, l.liblkl(LKL49)) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGALRM {
		return false
	}
	l.stalls++
	return true
}

// Stalls returns the number of repeated measurements with the old library since the last
// call.
func (l *Lab) Stalls() int {
	n := l.stalls
	l.stalls = 0
	return n
}

// Sample runs a command that prints values with units.
func (l *Lab) Sample(ctx context.Context, argv ...string) (table.Sample, error) {
	out, err := l.Output(ctx, argv...)
	for i := 1; i < stallsMost && l.stalled(argv, err); i++ {
		out, err = l.Output(ctx, argv...)
	}
	if err != nil {
		return nil, err
	}
	s, err := ParseSample(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	if begin, ok := s[windowBegin]; ok {
		l.Window(begin, s[windowEnd])
		delete(s, windowBegin)
		delete(s, windowEnd)
	}
	return s, nil
}

// ParseSample parses pairs of a value and its unit.
func ParseSample(text string) (table.Sample, error) {
	words := strings.Fields(text)
	if len(words) == 0 || len(words)%2 != 0 {
		return nil, fmt.Errorf("%q: expected pairs of a value and its unit", text)
	}
	s := table.Sample{}
	for i := 0; i < len(words); i += 2 {
		v, err := strconv.ParseFloat(words[i], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: expected a number before %q", text, words[i+1])
		}
		s[words[i+1]] = v
	}
	return s, nil
}

// CPU returns the CPU time in seconds used by all processes of the benchmarks.
func (l *Lab) CPU() float64 {
	if l.cpu == nil {
		return 0
	}
	return l.cpu.Seconds()
}

// A Proc is a background process.
type Proc struct {
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	out  bytes.Buffer
	once sync.Once
}

// Write collects the process's output.
func (p *Proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// Lines returns the lines of output so far.
func (p *Proc) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimRight(p.out.String(), "\n"), "\n")
}

// PID returns the process ID.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Stop sends SIGTERM, and SIGKILL a few seconds later.
func (p *Proc) Stop() {
	p.once.Do(func() {
		pid := p.cmd.Process.Pid
		_ = syscall.Kill(-pid, syscall.SIGTERM) // fails if the process has already ended
		select {
		case <-p.done:
		case <-time.After(SetupLimit / 2):
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL) // including its children
		<-p.done
	})
}

// Start runs a command in the background until the scenario is over.
func (l *Lab) Start(ctx context.Context, argv ...string) (*Proc, error) {
	p := &Proc{cmd: l.command(ctx, argv), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // Stop kills the process
		close(p.done)
	}()
	l.Cleanup(p.Stop)
	return p, nil
}

// Until polls a condition until it is true.
func (l *Lab) Until(ctx context.Context, what string, cond func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, SetupLimit)
	defer cancel()
	for {
		ok, err := cond()
		switch {
		case ok:
			return nil
		case ctx.Err() != nil && err != nil:
			return fmt.Errorf("waiting for %s: %w", what, err)
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case errors.Is(err, exec.ErrNotFound):
			return err
		}
	}
}

// WaitListen waits until a TCP port of a namespace is listening.
func (l *Lab) WaitListen(ctx context.Context, netns, port string) error {
	return l.Until(ctx, "a server on port "+port, func() (bool, error) {
		out, err := l.Output(ctx, "ip", "netns", "exec", netns, "ss", "-Hnlt", "( sport = :"+port+" )")
		return strings.TrimSpace(out) != "", err
	})
}
