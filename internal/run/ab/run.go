// SPDX-License-Identifier: Apache-2.0

package ab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/run/usage"
)

// endLimit bounds the time that a run may take to end after it was told to stop.
const endLimit = 15 * time.Second

// mostWords limits the part of a run's standard error that is kept.
const mostWords = 2000

// Program makes runs with a program that writes a usage.Report to the descriptor given
// with --report.
type Program struct {
	Path    string
	Flags   []string // flags for all variants
	Command []string
	Stdout  io.Writer // output of the command; nil: discarded
	Stderr  io.Writer // errors of the command; nil: discarded
}

// Args returns the command line of a variant. If the variant's stack is the host's
// kernel, it uses the host's interfaces, so Args omits the interface flags.
func (p *Program) Args(v *Variant) []string {
	args := slices.Clone(p.Flags)
	if v.onHost() {
		args = slices.DeleteFunc(args, func(f string) bool { return strings.HasPrefix(f, "--if=") })
	}
	return append(append(append(args, v.Flags...), "--"), p.Command...)
}

// onHost reports whether the last stack in a variant's flags is the host's kernel.
func (v *Variant) onHost() bool {
	name := ""
	for i, f := range v.Flags {
		if value, ok := strings.CutPrefix(f, "--stack="); ok {
			name = value
		} else if f == "--stack" && i+1 < len(v.Flags) {
			name = v.Flags[i+1]
		}
	}
	return name == "host"
}

// Run makes one run. When ctx is done, it tells the run to end and, after a timeout,
// kills it.
func (p *Program) Run(ctx context.Context, v *Variant) (Run, error) {
	// PR_SET_PDEATHSIG refers to the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	read, write, err := os.Pipe()
	if err != nil {
		return Run{}, err
	}
	defer read.Close()
	var last tail
	cmd := exec.CommandContext(ctx, p.Path, append([]string{"--report", "3"}, p.Args(v)...)...)
	cmd.ExtraFiles = []*os.File{write}
	cmd.Stdout, cmd.Stderr = p.Stdout, &last
	if p.Stderr != nil {
		cmd.Stderr = io.MultiWriter(p.Stderr, &last)
	}
	// Ctrl-C reaches only this process, which passes it on once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endLimit
	err = cmd.Start()
	write.Close()
	if err != nil {
		return Run{}, err
	}
	report, told := make(chan *usage.Report, 1), json.NewDecoder(read)
	go func() {
		r := new(usage.Report)
		if told.Decode(r) != nil { // the run ended without a report
			r = nil
		}
		report <- r
	}()
	err = cmd.Wait()
	_ = read.SetReadDeadline(time.Now().Add(endLimit)) // a process that inherited the other end may still have it open
	got := <-report
	var status *exec.ExitError
	switch {
	case err == nil, errors.As(err, &status), errors.Is(err, exec.ErrWaitDelay):
	case ctx.Err() != nil:
		return Run{}, ctx.Err()
	default:
		return Run{}, err
	}
	return outcome(cmd.ProcessState, got, last.String()), nil
}

// outcome converts the result of a run that has ended.
func outcome(state *os.ProcessState, report *usage.Report, words string) Run {
	r := Run{Status: state.ExitCode()}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Status = 128 + int(ws.Signal())
	}
	if r.Failed = r.Status != 0; r.Failed {
		r.Words = words
	}
	if report == nil {
		return r
	}
	r.Seconds, r.User, r.System, r.Stack, r.Counters = &report.Seconds, report.User, report.System, report.Stack, report.Counters
	number := func(n *int64) *float64 {
		if n == nil {
			return nil
		}
		f := float64(*n)
		return &f
	}
	r.Received, r.Sent = number(report.Received), number(report.Sent)
	if report.Counters != nil { // the report omits unchanged counters
		retrans := float64(report.Counters["TcpRetransSegs"])
		r.Retrans = &retrans
	}
	return r
}

// Check lets the program plan a variant's run, so that errors in the plan are found
// before the first run.
func (p *Program) Check(ctx context.Context, v *Variant) error {
	var said tail
	cmd := exec.CommandContext(ctx, p.Path, append([]string{"--dry-run"}, p.Args(v)...)...)
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		line, _, _ := strings.Cut(said.String(), "\n")
		_, why, found := strings.Cut(line, ": ")
		if !found {
			why = err.Error()
		}
		return fmt.Errorf("variant %q: %s", v.Name, why)
	}
	return nil
}

// tail keeps the last part of its input.
type tail struct{ b bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p)
	if extra := t.b.Len() - mostWords; extra > 0 {
		t.b.Next(extra)
	}
	return len(p), nil
}

// String returns the kept part.
func (t *tail) String() string { return strings.TrimSpace(strings.ToValidUTF8(t.b.String(), "?")) }
