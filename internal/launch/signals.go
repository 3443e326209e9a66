// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What is done about signals to lklrun itself:
//
//   - SIGINT, SIGQUIT and SIGWINCH of a terminal go to its whole foreground
//     process group, so the target has them already: they are dropped here.
//     Those that somebody sent to us alone are passed on: when we are not in the
//     foreground of a terminal, or lklhost did not get them.
//   - SIGTERM, SIGHUP, SIGUSR1 and the rest are passed on.
//   - SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT keep their default action: the group
//     stops and continues as one job.
//   - Once the target has gone, what would have ended it ends what is left of the
//     run: other processes (--wait-all), and the wait for data to arrive.
//   - Before the target is released, what would end it ends the start.
//
// Whoever wants the run to end shall not wait for ever for an lklhost that hangs or
// was stopped: a signal of ending has watch ask whether it still answers.
//
// Handlers, unlike ignored signals, are not inherited over execve(2): the
// target begins with what we began with. A signal that was ignored when we
// started (nohup) stays so, for us and for the target.
var (
	ending = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
	passed = []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR}
	byTTY  = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH}
)

// sharedLimit bounds the wait for word that lklhost got a terminal's signal too.
const sharedLimit = 500 * time.Millisecond

// SignalError is why a start was given up.
type SignalError struct{ Signal syscall.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return "interrupted by " + unix.SignalName(e.Signal) }

// heard is a signal, and when it was.
type heard struct {
	sig syscall.Signal
	at  time.Time
}

// signals catches signals for one run.
type signals struct {
	in    chan os.Signal
	done  chan struct{}
	asked chan struct{} // one of ending came

	mu     sync.Mutex
	target *os.Process // nil: not released yet
	rest   func(syscall.Signal)
	group  chan heard // signals that lklhost got too
	cancel context.CancelCauseFunc
}

// catchSignals begins to catch them. cancel is called with a *SignalError for
// one that ends the start.
func catchSignals(cancel context.CancelCauseFunc) *signals {
	s := &signals{in: make(chan os.Signal, 64), done: make(chan struct{}), asked: make(chan struct{}, 1), group: make(chan heard, 8), cancel: cancel}
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
	if slices.Contains(ending, os.Signal(sig)) {
		select {
		case s.asked <- struct{}{}:
		default: // asked already
		}
	}
	if slices.Contains(ending, os.Signal(sig)) && errors.Is(s.target.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		s.rest(sig)
		return
	}
	if slices.Contains(byTTY, os.Signal(sig)) && inForeground() {
		if sig != unix.SIGWINCH {
			go s.passUnlessShared(sig)
		}
		return
	}
	_ = s.target.Signal(sig) // it may have ended just now
}

// shared hears that lklhost, in our process group, got a signal too.
func (s *signals) shared(sig syscall.Signal) {
	select {
	case s.group <- heard{sig, time.Now()}:
	default: // so many that nobody waits for them
	}
}

// passUnlessShared passes a signal on that came to us alone though we are in the
// foreground: lklhost would have got a terminal's. In doubt the target gets it.
func (s *signals) passUnlessShared(sig syscall.Signal) {
	limit := time.After(sharedLimit)
	for {
		select {
		case other := <-s.group:
			if other.sig == sig && time.Since(other.at) < 2*sharedLimit {
				return
			}
		case <-s.done:
			return
		case <-limit:
			_ = s.target.Signal(sig) // it may have ended just now
			return
		}
	}
}

// release tells that the target runs: from now on it gets the signals. It fails
// with a *SignalError when one came before. What the run outlasts the target by,
// other processes or data on their way, rest ends.
func (s *signals) release(ctx context.Context, target *os.Process, rest func(syscall.Signal)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.target, s.rest = target, rest
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
