// SPDX-License-Identifier: Apache-2.0

// Package signals forwards signals that lklrun receives to the target of a run,
// or aborts the start of the run.
package signals

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

// lklrun handles signals to itself as follows:
//
//   - A terminal sends SIGINT, SIGQUIT and SIGWINCH to its whole foreground
//     process group. The target gets these signals directly, so lklrun drops
//     them. lklrun forwards such a signal only if it was sent to lklrun alone:
//     lklrun is not in the foreground of a terminal, or lklhost did not get the
//     signal.
//   - lklrun forwards SIGTERM, SIGHUP, SIGUSR1 and the remaining signals.
//   - SIGTSTP, SIGTTIN, SIGTTOU and SIGCONT keep their default action: the
//     process group stops and continues as one job.
//   - After the target's end, a signal that would have ended the target ends
//     the rest of the run: other processes (--wait-all), and the wait for data
//     to arrive.
//   - Before the target's release, such a signal aborts the start.
//
// The user must not wait forever for an lklhost that hangs or was stopped.
// After a terminating signal, the run therefore checks whether lklhost still
// answers.
//
// Unlike ignored signals, handlers are not inherited over execve(2). The target
// therefore starts with the same dispositions as lklrun. A signal that was
// ignored at the start (nohup) remains ignored in lklrun and in the target.
var (
	ending = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
	passed = []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR}
	byTTY  = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH}
)

// sharedLimit bounds the wait for a message from lklhost that it also got a
// terminal's signal.
const sharedLimit = 500 * time.Millisecond

// AbortError reports that a signal aborted the start.
type AbortError struct{ Signal syscall.Signal }

// Error names the signal.
func (e *AbortError) Error() string { return "interrupted by " + unix.SignalName(e.Signal) }

// heard is a signal with its time of arrival.
type heard struct {
	sig syscall.Signal
	at  time.Time
}

// Catcher catches the signals of one run.
type Catcher struct {
	in    chan os.Signal
	done  chan struct{}
	asked chan struct{}

	mu     sync.Mutex
	target *os.Process // nil: not released yet
	rest   func(syscall.Signal)
	group  chan heard // signals that lklhost got as well
	cancel context.CancelCauseFunc
}

// Catch starts to catch signals. It calls cancel with a *AbortError for
// a signal that aborts the start.
func Catch(cancel context.CancelCauseFunc) *Catcher {
	s := &Catcher{in: make(chan os.Signal, 64), done: make(chan struct{}), asked: make(chan struct{}, 1), group: make(chan heard, 8), cancel: cancel}
	for _, sig := range slices.Concat(ending, passed) {
		if !signal.Ignored(sig) {
			signal.Notify(s.in, sig)
		}
	}
	// With a handler for SIGPIPE, a write to a closed standard error fails
	// instead of ending this process.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	go s.run()
	return s
}

func (s *Catcher) run() {
	for {
		select {
		case sig := <-s.in:
			s.handle(sig.(syscall.Signal))
		case <-s.done:
			return
		}
	}
}

func (s *Catcher) handle(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == nil {
		if slices.Contains(ending, os.Signal(sig)) {
			s.cancel(&AbortError{sig})
		}
		return
	}
	if slices.Contains(ending, os.Signal(sig)) {
		select {
		case s.asked <- struct{}{}:
		default: // a check has already been requested
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
	_ = s.target.Signal(sig) // fails if the target has just ended
}

// Asked returns a channel that receives a value after a signal that should end
// the run.
func (s *Catcher) Asked() <-chan struct{} { return s.asked }

// Shared records that lklhost, which is in our process group, got a signal as
// well.
func (s *Catcher) Shared(sig syscall.Signal) {
	select {
	case s.group <- heard{sig, time.Now()}:
	default: // there are too many signals, and no caller waits for all of them
	}
}

// passUnlessShared forwards a signal if only lklrun got it, although lklrun is
// in the foreground. lklhost gets every signal of a terminal, too. If it is
// uncertain whether lklhost got the signal, the target gets it.
func (s *Catcher) passUnlessShared(sig syscall.Signal) {
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
			_ = s.target.Signal(sig) // fails if the target has just ended
			return
		}
	}
}

// Release forwards signals to the running target from now on. It returns an
// *AbortError if a signal has already arrived. After the target's end, signals
// go to rest, which ends the remaining processes or the wait for data.
func (s *Catcher) Release(ctx context.Context, target *os.Process, rest func(syscall.Signal)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.target, s.rest = target, rest
	return nil
}

// Stop ends the forwarding. The handlers remain until lklrun ends, so that no
// signal interrupts the cleanup.
func (s *Catcher) Stop() { close(s.done) }

// inForeground reports whether our process group is the foreground group of our
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
