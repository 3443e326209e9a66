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
	"github.com/lklrun/lklrun/internal/run/signals"
	"github.com/lklrun/lklrun/internal/run/stackhost"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// PanicError reports a panic of the stack's kernel, with the kernel's message.
type PanicError struct {
	Text     string
	Bundle   string // path of the bundle; "": none
	NoBundle string // reason why there is no bundle
}

// Error quotes the panic and names the bundle.
func (e *PanicError) Error() string {
	s := fmt.Sprintf("the stack's kernel panicked, so the command was killed: %s", e.Text)
	if e.Bundle != "" {
		s += "; its log, sockets and counters are in " + e.Bundle
	}
	if e.NoBundle != "" {
		s += fmt.Sprintf(" (saving its log: %s)", e.NoBundle)
	}
	return s
}

// watcher follows a run until lklhost has ended and all its events have
// arrived. lklhost ends after the target.
type watcher struct {
	conn    *stackconn.Conn
	events  <-chan ctlproto.Event
	host    *stackhost.Process
	signals *signals.Catcher
	log     *slog.Logger
	tell    func(string)

	started  func()                                  // called when the target runs
	refused  func(ctx context.Context, to string)    // called when the stack has refused a connect to loopback
	ended    func(account string)                    // called when the target has ended
	panicked func(ctx context.Context, error string) // called when the kernel has panicked; lklhost still answers

	end     *exit.End // how the target ended
	problem error     // failure of the stack
	limit   <-chan time.Time
}

// by sets the remaining time to d.
func (w *watcher) by(d time.Duration) { w.limit = time.After(d) }

// watch waits for the end of the run and returns its result.
func (w *watcher) watch(ctx context.Context) (exit.End, error) {
	events, exited := w.events, w.host.Exited()
	var answer chan bool
	for events != nil || exited != nil {
		select {
		case e, ok := <-events:
			if !ok { // the connection has ended, so lklhost will end soon
				if events = nil; w.limit == nil {
					w.by(stopLimit)
				}
				continue
			}
			w.handleEvent(ctx, e)
		case <-exited:
			exited = nil // the last events of lklhost may not have arrived yet
			w.by(stopLimit)
		case <-w.limit:
			return w.late(exited == nil)
		case <-w.signals.Asked():
			if answer == nil {
				answer = w.ask(ctx)
			}
		case ok := <-answer:
			if answer = nil; !ok && w.limit == nil {
				w.host.Unresponsive = true
				return exit.End{}, fmt.Errorf("the stack host (pid %d) does not answer, so it and the command were killed", w.conn.Hello().HostPID)
			}
		case <-ctx.Done():
			return exit.End{}, context.Cause(ctx)
		}
	}
	return w.verdict()
}

// ask checks whether lklhost answers within answerLimit.
func (w *watcher) ask(ctx context.Context) chan bool {
	answer := make(chan bool, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, answerLimit)
		defer cancel()
		_, err := w.conn.Refresh(ctx)
		answer <- !errors.Is(err, context.DeadlineExceeded)
	}()
	return answer
}

// handleEvent handles an event.
func (w *watcher) handleEvent(ctx context.Context, e ctlproto.Event) {
	switch e.Kind {
	case ctlproto.CTL_EV_WARN:
		w.tell(e.Text)
	case ctlproto.CTL_EV_NOTE:
		w.log.Debug(e.Text)
	case ctlproto.CTL_EV_SIGNAL:
		w.signals.Shared(syscall.Signal(e.Arg))
	case ctlproto.CTL_EV_START:
		w.started()
	case ctlproto.CTL_EV_REFUSED:
		w.refused(ctx, e.Text)
	case ctlproto.CTL_EV_EXIT:
		was := exit.FromStatus(syscall.WaitStatus(e.Arg))
		w.end = &was
		w.by(endLimit)
		w.ended(e.Text)
	case ctlproto.CTL_EV_PANIC:
		w.problem = &PanicError{Text: e.Text}
		w.panicked(ctx, w.problem.Error())
		w.by(endLimit)
		w.stop(ctx)
	}
}

// verdict returns the result of the run after lklhost has ended.
func (w *watcher) verdict() (exit.End, error) {
	switch {
	case w.problem != nil:
		return exit.End{}, w.problem
	case w.end != nil:
		return *w.end, nil
	}
	return exit.End{}, fmt.Errorf("the stack host (pid %d) %s, so the command was killed", w.conn.Hello().HostPID, w.host.End())
}

// late returns the result of the run after a timeout. If exited is true,
// lklhost has ended but its connection has not.
func (w *watcher) late(exited bool) (exit.End, error) {
	switch {
	case exited || w.problem != nil:
		return w.verdict()
	case w.end != nil:
		// The target's result counts. Tell the user that the stack
		// hangs.
		w.tell("the stack host did not exit in time and was killed; the last data that the command sent may be lost")
		return *w.end, nil
	}
	return exit.End{}, errors.New("the stack host closed its connection without exiting, so it and the command were killed")
}

// stop stops lklhost after a panic. No other part of this run needs its
// answers.
func (w *watcher) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	if err := w.conn.Stop(ctx, unix.SIGKILL, 0); err != nil {
		w.log.Debug("stopping the panicked stack", "error", err)
	}
}
