// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// PanicError reports a panic of the stack's kernel, with the kernel's message.
type PanicError struct {
	Text     string
	Bundle   string // path of the bundle; "": none
	NoBundle string // why there is no bundle
}

// Error quotes the panic and names the bundle.
func (e *PanicError) Error() string {
	s := fmt.Sprintf("the stack's kernel panicked, so the command was killed: %s", e.Text)
	if e.Bundle != "" {
		s += "; its log, sockets and counters are in " + e.Bundle
	}
	if e.NoBundle != "" {
		s += fmt.Sprintf(" (keeping its log: %s)", e.NoBundle)
	}
	return s
}

// outcome holds what is known about the end of the run.
type outcome struct {
	end     *exit.End // end of the target
	problem error     // failure of the stack
	limit   <-chan time.Time
}

// by limits the remaining time to d.
func (g *outcome) by(d time.Duration) { g.limit = time.After(d) }

// watch follows the run until lklhost has ended and all its events have been
// received. lklhost ends after the target.
func (r *run) watch(ctx context.Context) (exit.End, error) {
	var g outcome
	events, exited := r.events, r.host.Exited()
	var answer chan bool
	for events != nil || exited != nil {
		select {
		case e, ok := <-events:
			if !ok { // the connection has ended; lklhost is about to end
				if events = nil; g.limit == nil {
					g.by(stopLimit)
				}
				continue
			}
			r.heard(ctx, e, &g)
		case <-exited:
			exited = nil // its last events may still be on their way
			g.by(stopLimit)
		case <-g.limit:
			return r.late(&g, exited == nil)
		case <-r.signals.Asked():
			if answer == nil {
				answer = r.ask(ctx)
			}
		case ok := <-answer:
			if answer = nil; !ok && g.limit == nil {
				r.host.Unresponsive = true
				return exit.End{}, fmt.Errorf("the stack host (pid %d) does not answer, so it and the command were killed", r.state.HostPID)
			}
		case <-ctx.Done():
			return exit.End{}, context.Cause(ctx)
		}
	}
	return r.verdict(&g)
}

// ask checks whether lklhost answers within answerLimit.
func (r *run) ask(ctx context.Context) chan bool {
	answer := make(chan bool, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, answerLimit)
		defer cancel()
		_, err := r.conn.Refresh(ctx)
		answer <- !errors.Is(err, context.DeadlineExceeded)
	}()
	return answer
}

// heard handles an event.
func (r *run) heard(ctx context.Context, e ctlproto.Event, g *outcome) {
	switch e.Kind {
	case ctlproto.CTL_EV_WARN:
		r.opts.Tell(e.Text)
	case ctlproto.CTL_EV_NOTE:
		r.log.Debug(e.Text)
	case ctlproto.CTL_EV_SIGNAL:
		r.signals.Shared(syscall.Signal(e.Arg))
	case ctlproto.CTL_EV_START:
		r.started()
	case ctlproto.CTL_EV_EXIT:
		r.meter.End()
		was := exit.Of(syscall.WaitStatus(e.Arg))
		g.end = &was
		g.by(endLimit)
		r.keep(e.Text)
	case ctlproto.CTL_EV_PANIC:
		g.problem = &PanicError{Text: e.Text}
		r.gather(ctx, g.problem.Error())
		g.by(endLimit)
		r.stopPanicked(ctx)
	}
}

// keep stores and logs the account that arrived with the target's end.
func (r *run) keep(text string) {
	a, err := account.ParseFinal(text)
	if err != nil {
		r.log.Debug("no account of this run", "error", err)
	}
	if a == nil && err == nil {
		r.log.Debug("no account of this run: the program that had the kernel was killed, or executed another one")
	}
	if r.account = a; a == nil || !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, line := range a.Lines() {
		r.log.Debug(line)
	}
}

// verdict returns the result of the run after lklhost's end.
func (r *run) verdict(g *outcome) (exit.End, error) {
	switch {
	case g.problem != nil:
		return exit.End{}, g.problem
	case g.end != nil:
		return *g.end, nil
	}
	return exit.End{}, fmt.Errorf("the stack host (pid %d) %s, so the command was killed", r.state.HostPID, r.host.End())
}

// late returns the result of the run after a timeout. If exited is true,
// lklhost has ended and only its connection has not.
func (r *run) late(g *outcome, exited bool) (exit.End, error) {
	switch {
	case exited || g.problem != nil:
		return r.verdict(g)
	case g.end != nil:
		// The target's result counts; the user is told that the stack
		// hangs.
		r.opts.Tell("the stack host did not end in time and was killed: data the command sent last may be lost")
		return *g.end, nil
	}
	return exit.End{}, errors.New("the stack host closed its connection but goes on, so it and the command were killed")
}

// stopPanicked stops lklhost after a panic. Nothing else in this run needs its
// answers.
func (r *run) stopPanicked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	if err := r.conn.Stop(ctx, unix.SIGKILL, 0); err != nil {
		r.log.Debug("stopping the panicked stack", "error", err)
	}
}
