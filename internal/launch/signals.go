// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// What is done about signals to lklrun itself:
//
//   - SIGINT, SIGQUIT and SIGWINCH of a terminal go to its whole foreground
//     process group, so the target has them already: they are dropped here.
//     When we are not in the foreground of a terminal somebody sent them to us
//     alone, and they are passed on.
//   - SIGTERM, SIGHUP, SIGUSR1 and the rest are passed on.
//   - SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT keep their default action: the group
//     stops and continues as one job.
//   - Before the target is released, what would end it ends the start.
//
// Handlers, unlike ignored signals, are not inherited over execve(2): the
// target begins with what we began with. A signal that was ignored when we
// started (nohup) stays so, for us and for the target.
var (
	ending = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
	passed = []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR}
	byTTY  = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH}
)

// SignalError is why a start was given up.
type SignalError struct{ Signal syscall.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return "interrupted by " + unix.SignalName(e.Signal) }

// signals catches signals for one run.
type signals struct {
	in   chan os.Signal
	done chan struct{}

	mu     sync.Mutex
	target *os.Process // nil: not released yet
	cancel context.CancelCauseFunc
}

// catchSignals begins to catch them. cancel is called with a *SignalError for
// one that ends the start.
func catchSignals(cancel context.CancelCauseFunc) *signals {
	s := &signals{in: make(chan os.Signal, 64), done: make(chan struct{}), cancel: cancel}
	for _, sig := range slices.Concat(ending, passed) {
		if !signal.Ignored(sig) {
			signal.Notify(s.in, sig)
		}
	}
	// With a handler, a line to a standard error that nobody reads is an error
	// instead of our end.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	go s.run()
	return s
}

func (s *signals) run() {
	for {
		select {
		case sig := <-s.in:
			s.handle(sig.(syscall.Signal))
		case <-s.done:
			return
		}
	}
}

func (s *signals) handle(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == nil {
		if slices.Contains(ending, os.Signal(sig)) {
			s.cancel(&SignalError{sig})
		}
		return
	}
	if slices.Contains(byTTY, os.Signal(sig)) && inForeground() {
		return
	}
	_ = s.target.Signal(sig) // it may have ended just now
}

// release tells that the target runs: from now on it gets the signals. It fails
// with a *SignalError when one came before.
func (s *signals) release(ctx context.Context, target *os.Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.target = target
	return nil
}

// stop ends the passing on. The handlers stay: until lklrun ends, no signal
// shall cut its clean-up short.
func (s *signals) stop() { close(s.done) }

// inForeground tells whether our process group is the foreground one of our
// controlling terminal.
func inForeground() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false // no terminal
	}
	defer unix.Close(fd)
	pgrp, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}
