// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/launch"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/stackhost"
)

// A run in the background is made by a second lklrun in a session of its own.
// It gets the same command line after --detached FD. Until the target runs, it
// reports to that descriptor, one line of JSON per event:
//
//	lklrun --detach ──┬── tell ...     a line for the user
//	                  ├── started      the target runs: print the name, end with 0
//	                  └── ended        the start failed: end with this status

// news is one such line. Exactly one of its fields is set.
type news struct {
	Tell    string    `json:"tell,omitempty"`
	Started string    `json:"started,omitempty"` // the instance's name
	Ended   *exit.End `json:"ended,omitempty"`
}

// detach starts the second lklrun and waits until its target runs.
func (r *runner) detach(args []string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("looking for this program: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer read.Close()
	cmd := &exec.Cmd{
		Path: exe,
		Args: append([]string{self, "--detached", strconv.Itoa(int(write.Fd()))}, args...),
		// It gets no standard output, so that a reader of ours sees it
		// end.
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	// Signals that end a start are passed on to the second lklrun, which
	// then reports its end. They must be caught before it exists. Otherwise
	// a signal in between would end only this process.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	err = stackhost.HandOver([]*os.File{write}, cmd.Start)
	write.Close()
	if err != nil {
		return fmt.Errorf("starting lklrun in the background: %w", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // if it has ended, the pipe has ended too
		}
	}()
	r.end, err = follow(read)
	return err
}

// follow reads the news of a start until its end.
func follow(read io.Reader) (exit.End, error) {
	in := bufio.NewScanner(read)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var n news
		if err := json.Unmarshal(in.Bytes(), &n); err != nil {
			return exit.End{}, fmt.Errorf("lklrun in the background: %w", err)
		}
		switch {
		case n.Started != "":
			_, err := fmt.Println(n.Started)
			return exit.End{}, err
		case n.Ended != nil:
			return *n.Ended, nil
		}
		cli.Note(os.Stderr, self, "%s", n.Tell)
	}
	return exit.End{Status: exitOwn}, fmt.Errorf("lklrun in the background has ended before the command ran")
}

// background is the second lklrun's end of the descriptor.
type background struct {
	mu sync.Mutex
	to *os.File // nil: the target runs, or there was no descriptor
}

func newBackground(fd int) *background {
	unix.CloseOnExec(fd)
	return &background{to: os.NewFile(uintptr(fd), "detached")}
}

// say writes news. The news about the end of the start is the last.
func (b *background) say(n news) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.to == nil {
		return false
	}
	_ = json.NewEncoder(b.to).Encode(n) // fails if the first lklrun has ended, which then needs no news
	if n.Tell == "" {
		b.to.Close()
		b.to = nil
	}
	return true
}

// tell prints a line for the user: at the terminal until the target runs, and
// then in the run's log.
func (b *background) tell(line string) {
	if !b.say(news{Tell: line}) {
		cli.Note(os.Stderr, self, "%s", line)
	}
}

// run performs the run of the second lklrun. Its errors are reported in the
// same way.
func (b *background) run(r *runner, p *plan.Plan, opts launch.Options) error {
	opts.Tell = func(line string) { b.tell(text.OneLine(line)) }
	opts.Started = func(name string) { b.say(news{Started: name}) }
	opts.Background = true
	if log := r.config.Run.Log; log != "" {
		f, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return b.failed(r, cli.Usagef("--log: %w", err))
		}
		opts.Output = f
	}
	end, err := launch.Run(r.cmd.Context(), p, opts)
	if err != nil {
		return b.failed(r, errRun{located(r.config, err)})
	}
	r.end = end
	b.say(news{Ended: &end})
	return nil
}

// failed reports err, and returns how the process must end.
func (b *background) failed(r *runner, err error) error {
	b.tell(text.OneLine(err.Error()))
	r.end = exit.End{Status: status(err)}
	b.say(news{Ended: &r.end})
	return nil
}
