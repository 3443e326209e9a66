// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/ctlproto"
	"github.com/lklrun/lklrun/internal/exit"
)

// PanicError says that the stack's kernel panicked, in the kernel's own words.
type PanicError struct {
	Text     string
	Bundle   string // the file with what is known of it; "": there is none
	NoBundle string // why not
}

// Error quotes the panic, and says where more is.
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

// outcome is what is known of how the run ends.
type outcome struct {
	end     *exit.End // the target's
	problem error     // the stack's
	limit   <-chan time.Time
}

// by bounds what is still to come.
func (g *outcome) by(d time.Duration) { g.limit = time.After(d) }

// watch follows the run until lklhost has ended, which it does when the target
// has, and until everything it said is heard.
func (r *run) watch(ctx context.Context) (exit.End, error) {
	var g outcome
	events, exited := r.events, r.host.exited
	var answer chan bool
	for events != nil || exited != nil {
		select {
		case e, ok := <-events:
			if !ok { // the connection is over; lklhost is about to be
				if events = nil; g.limit == nil {
					g.by(stopLimit)
				}
				continue
			}
			r.heard(ctx, e, &g)
		case <-exited:
			exited = nil // what it said last may still be on its way
			g.by(stopLimit)
		case <-g.limit:
			return r.late(&g, exited == nil)
		case <-r.signals.asked:
			if answer == nil {
				answer = r.ask(ctx)
			}
		case ok := <-answer:
			if answer = nil; !ok && g.limit == nil {
				r.deaf = true
				return exit.End{}, fmt.Errorf("the stack host (pid %d) does not answer, so it and the command were killed", r.state.HostPID)
			}
		case <-ctx.Done():
			return exit.End{}, context.Cause(ctx)
		}
	}
	return r.verdict(&g)
}

// ask finds out whether lklhost answers within answerLimit.
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

// heard takes an event.
func (r *run) heard(ctx context.Context, e ctlproto.Event, g *outcome) {
	switch e.Kind {
	case ctlproto.CTL_EV_WARN:
		r.opts.Tell(e.Text)
	case ctlproto.CTL_EV_NOTE:
		r.log.Debug(e.Text)
	case ctlproto.CTL_EV_SIGNAL:
		r.signals.shared(syscall.Signal(e.Arg))
	case ctlproto.CTL_EV_START:
		r.started()
	case ctlproto.CTL_EV_EXIT:
		r.reporter.end()
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

// verdict is the run's end once lklhost has ended.
func (r *run) verdict(g *outcome) (exit.End, error) {
	switch {
	case g.problem != nil:
		return exit.End{}, g.problem
	case g.end != nil:
		return *g.end, nil
	}
	return exit.End{}, fmt.Errorf("the stack host (pid %d) %s, so the command was killed", r.state.HostPID, r.host.end())
}

// late is the run's end when its time is over; exited tells whether lklhost has
// ended, and only its connection has not.
func (r *run) late(g *outcome, exited bool) (exit.End, error) {
	switch {
	case exited || g.problem != nil:
		return r.verdict(g)
	case g.end != nil:
		// The target's end counts; that the stack hangs is told.
		r.opts.Tell("the stack host did not end in time and was killed: data the command sent last may be lost")
		return *g.end, nil
	}
	return exit.End{}, errors.New("the stack host closed its connection but goes on, so it and the command were killed")
}

// stopPanicked lets a panicked stack host go: nobody else will ask it anything
// in this run.
func (r *run) stopPanicked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	if err := r.conn.Stop(ctx, unix.SIGKILL, 0); err != nil {
		r.log.Debug("stopping the panicked stack", "error", err)
	}
}
