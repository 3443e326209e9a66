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

	"github.com/lklrun/lklrun/internal/launch"
)

// endLimit is how long a run may take to end when it is told to.
const endLimit = 15 * time.Second

// mostWords is what is kept of what a run writes to standard error.
const mostWords = 2000

// Program makes runs by a program that writes a launch.Report to the descriptor
// whose number follows --report.
type Program struct {
	Path    string
	Flags   []string // of all variants
	Command []string
	Stdout  io.Writer // of the command; nil: discarded
	Stderr  io.Writer // likewise
}

// Args is the command line of a variant. With the host's own kernel as its stack
// it has the host's own interfaces: those of the others are left out.
func (p *Program) Args(v *Variant) []string {
	args := slices.Clone(p.Flags)
	if v.onHost() {
		args = slices.DeleteFunc(args, func(f string) bool { return strings.HasPrefix(f, "--if=") })
	}
	return append(append(append(args, v.Flags...), "--"), p.Command...)
}

// onHost says whether the stack that a variant's flags name last is the host's.
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

// Run makes one run. When ctx is done it is told to end, and killed if it does not.
func (p *Program) Run(ctx context.Context, v *Variant) (Run, error) {
	// PR_SET_PDEATHSIG is about the thread that forks.
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
	// A Ctrl-C is ours, and we pass it on once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endLimit
	err = cmd.Start()
	write.Close()
	if err != nil {
		return Run{}, err
	}
	report, told := make(chan *launch.Report, 1), json.NewDecoder(read)
	go func() {
		r := new(launch.Report)
		if told.Decode(r) != nil { // it ended without: there is none
			r = nil
		}
		report <- r
	}()
	err = cmd.Wait()
	_ = read.SetReadDeadline(time.Now().Add(endLimit)) // who has inherited the other end may hold it
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

// outcome is what is known of a run that has ended.
func outcome(state *os.ProcessState, report *launch.Report, words string) Run {
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
	if report.Counters != nil { // those that did not change are not in it
		retrans := float64(report.Counters["TcpRetransSegs"])
		r.Retrans = &retrans
	}
	return r
}

// Check has the program plan a variant's run, which says what is wrong with it.
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

// tail keeps the end of what is written to it.
type tail struct{ b bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p)
	if extra := t.b.Len() - mostWords; extra > 0 {
		t.b.Next(extra)
	}
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string { return strings.TrimSpace(strings.ToValidUTF8(t.b.String(), "?")) }
