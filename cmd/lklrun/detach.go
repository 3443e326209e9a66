// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/launch"
	"github.com/lklrun/lklrun/internal/run/stackhost"
)

// For a run in the background, lklrun starts a second lklrun in a session of its
// own. The socket of --detached FD connects the two. Through it, the second lklrun
// receives the task, which contains the plan. Until the target runs, the second
// lklrun reports one line of JSON per event:
//
//	lklrun --detached ──┬── tell ...     a line for the user
//	                    ├── failed ...   the start failed: why
//	                    ├── started      the target runs: print the name, end with 0
//	                    └── ended        the start failed: end with this status

// report is one line of what the second lklrun says. Exactly one of its fields is set.
type report struct {
	Tell    string    `json:"tell,omitempty"`
	Failed  string    `json:"failed,omitempty"`
	Started string    `json:"started,omitempty"` // the instance's name
	Ended   *exit.End `json:"ended,omitempty"`
}

// last reports whether no more reports follow.
func (n *report) last() bool { return n.Started != "" || n.Ended != nil }

// detach starts the second lklrun and waits until its target runs.
func (r *runner) detach(t *task) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the lklrun program: %w", err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("creating a socket for --detach: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "detached"), os.NewFile(uintptr(fds[1]), "detached")
	defer ours.Close()
	cmd := &exec.Cmd{
		Path: exe,
		// The command is only for the output of ps(1).
		Args: append([]string{self, "--detached", strconv.Itoa(fds[1]), "--"}, t.Plan.Command...),
		// The second lklrun gets no standard output. Otherwise a process that reads
		// our output would not see its end.
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	// Forward terminating signals to the second lklrun, which then reports its end.
	// Catch them before the second lklrun starts; otherwise an early signal would
	// end only this process.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	err = stackhost.InheritFiles([]*os.File{theirs}, cmd.Start)
	theirs.Close()
	if err != nil {
		return fmt.Errorf("starting lklrun in the background: %w", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // fails only if it has ended; the socket is then closed, too
		}
	}()
	if err := json.NewEncoder(ours).Encode(t); err != nil {
		return fmt.Errorf("starting lklrun in the background: %w", err)
	}
	started, err := r.follow(ours)
	if !started {
		_ = cmd.Wait() // the second lklrun is ending, and has reported its result
	}
	return err
}

// follow reads the reports of a start until its end, and reports whether the target
// runs.
func (r *runner) follow(read io.Reader) (started bool, err error) {
	in := bufio.NewScanner(read)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var n report
		if err := json.Unmarshal(in.Bytes(), &n); err != nil {
			return false, fmt.Errorf("reading the result of lklrun in the background: %w", err)
		}
		switch {
		case n.Started != "":
			_, err := fmt.Println(n.Started)
			return true, err
		case n.Ended != nil:
			r.end = *n.Ended
			return false, nil
		case n.Failed != "":
			n.Tell = text.OneLine(located(r.config, errors.New(n.Failed)).Error())
		}
		cli.Note(os.Stderr, self, "%s", n.Tell)
	}
	return false, errors.New("lklrun in the background ended before it started the command")
}

// background is the second lklrun's end of the socket.
type background struct {
	mu sync.Mutex
	to *os.File // nil: the target runs
}

// say writes a report. After the last report of a start, it writes nothing.
func (b *background) say(n report) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.to == nil {
		return false
	}
	_ = json.NewEncoder(b.to).Encode(n) // fails if the first lklrun has ended and so needs no news
	if n.last() {
		b.to.Close()
		b.to = nil
	}
	return true
}

// tell prints a line for the user. The line appears at the terminal until the
// target runs, and afterwards in the run's log.
func (b *background) tell(line string) {
	if !b.say(report{Tell: line}) {
		cli.Note(os.Stderr, self, "%s", line)
	}
}

// runBackground performs the run in the second lklrun. It reports errors so,
// too.
func runBackground(ctx context.Context, fd int) (exit.End, error) {
	unix.CloseOnExec(fd)
	b := &background{to: os.NewFile(uintptr(fd), "detached")}
	var t task
	if err := json.NewDecoder(b.to).Decode(&t); err != nil {
		return exit.End{}, fmt.Errorf("reading the plan for the background: %w", err)
	}
	opts := t.options()
	opts.Tell = func(line string) { b.tell(text.OneLine(line)) }
	opts.Started = func(name string) { b.say(report{Started: name}) }
	opts.Background = true
	opts.NoRecord = t.Device // a device keeps nothing after a run
	if t.Log != "" {
		path, err := filepath.Abs(t.Log) // for lklctl logs
		if err != nil {
			return b.failed(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return b.failed(cli.Usagef("--log: %w", err))
		}
		opts.Output = f
	}
	end, err := launch.Run(ctx, t.Plan, opts)
	if err != nil {
		return b.failed(errRun{err})
	}
	b.say(report{Ended: &end})
	return end, nil
}

// failed reports err, and returns how the process must end.
func (b *background) failed(err error) (exit.End, error) {
	if !b.say(report{Failed: err.Error()}) {
		cli.Note(os.Stderr, self, "%s", text.OneLine(err.Error()))
	}
	end := exit.End{Status: exit.Status(err)}
	b.say(report{Ended: &end})
	return end, nil
}
