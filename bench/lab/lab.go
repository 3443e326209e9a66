// SPDX-License-Identifier: Apache-2.0

// Package lab makes what the benchmarks measure on: namespaces, wires, servers
// and command lines. It is for Linux and wants root, and runs inside namespaces
// of the benchmarks' own, which take everything with them.
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

// Limits of what the lab waits for.
const (
	SetupLimit = 10 * time.Second // one command that sets something up
	RunLimit   = 70 * time.Second // one measurement; lklbench has its own, 60 s
)

// A Form is how much is measured.
type Form struct {
	Name   string
	Rounds int
	Length time.Duration // of one bulk transfer
	Count  int           // of round trips
	Full   bool
}

// A Lab is where scenarios are built, one after the other.
type Lab struct {
	Root string // of the repository
	Form Form

	cpu      *Account
	perf     *Perf // that records now, or nil
	cleanups []func()
	mu       sync.Mutex
	natives  map[string]string
	stalls   int // of the old library
}

// New makes a lab in the repository's folder: with a /run of its own, for the
// names of namespaces and for run directories.
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

// Cleanup has f run when the scenario is over, the last one first.
func (l *Lab) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

// Close ends a scenario.
func (l *Lab) Close() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
	l.cleanups = nil
}

// Native builds bench/native/NAME.c, once, and returns the program's path.
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

// Bench is the path of lklbench.
func (l *Lab) Bench() string { return filepath.Join(l.Root, "build", "bench", "lklbench") }

// Bin is a program of the project's.
func (l *Lab) Bin(name string) string { return filepath.Join(l.Root, "bin", name) }

// Milliseconds is the length of one bulk transfer, for lklbench.
func (l *Lab) Milliseconds() string { return strconv.FormatInt(l.Form.Length.Milliseconds(), 10) }

// Count is how many round trips are made, for lklbench.
func (l *Lab) Count() string { return strconv.Itoa(l.Form.Count) }

// Run runs commands that set something up, each a line that is split at spaces.
func (l *Lab) Run(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if _, err := l.output(ctx, SetupLimit, strings.Fields(line)); err != nil {
			return fmt.Errorf("setting up: %w", err)
		}
	}
	return nil
}

// Output runs a command within a limit and returns what it printed.
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

// command is one whose descriptor 3 tells CPU time, in a process group of its own.
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

// stallsMost is how often a measurement that the old library spoils is begun.
const stallsMost = 4

// stalled says whether it was the old library that stood still (its kernel does
// so now and then) until the measurement's own limit, and counts that.
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

// Stalls is how often a measurement of the old library was begun again since
// this was last asked.
func (l *Lab) Stalls() int {
	n := l.stalls
	l.stalls = 0
	return n
}

// Sample runs a command that prints values with their units.
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

// ParseSample reads pairs of a value and its unit.
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

// CPU is how many seconds of CPU time all processes of the benchmarks have used.
func (l *Lab) CPU() float64 {
	if l.cpu == nil {
		return 0
	}
	return l.cpu.Seconds()
}

// A Proc is a process in the background.
type Proc struct {
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	out  bytes.Buffer
	once sync.Once
}

// Write collects what it prints.
func (p *Proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// Lines is what it has printed so far.
func (p *Proc) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimRight(p.out.String(), "\n"), "\n")
}

// PID is the process's number.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Done is closed when it has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Stop ends it: politely, and a few seconds later not.
func (p *Proc) Stop() {
	p.once.Do(func() {
		pid := p.cmd.Process.Pid
		_ = syscall.Kill(-pid, syscall.SIGTERM) // may be gone
		select {
		case <-p.done:
		case <-time.After(SetupLimit / 2):
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL) // its children too
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
		_ = p.cmd.Wait() // Stop ends it
		close(p.done)
	}()
	l.Cleanup(p.Stop)
	return p, nil
}

// Until waits for a condition, looking again and again.
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

// WaitListen waits until somebody listens on a TCP port of a namespace.
func (l *Lab) WaitListen(ctx context.Context, netns, port string) error {
	return l.Until(ctx, "a server on port "+port, func() (bool, error) {
		out, err := l.Output(ctx, "ip", "netns", "exec", netns, "ss", "-Hnlt", "( sport = :"+port+" )")
		return strings.TrimSpace(out) != "", err
	})
}
