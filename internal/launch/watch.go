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
)

// PanicError says that the stack's kernel panicked, in the kernel's own words.
type PanicError struct{ Text string }

// Error quotes the panic.
func (e *PanicError) Error() string {
	return fmt.Sprintf("the stack's kernel panicked, so the command was killed: %s", e.Text)
}

// watch follows the run until lklhost has ended, which it does when the target
// has.
func (r *run) watch(ctx context.Context) (End, error) {
	var (
		end     *End
		problem error
		limit   <-chan time.Time // set once the end has begun
		events  = r.events
	)
	for {
		select {
		case e, ok := <-events:
			if !ok { // the connection is over; lklhost is about to be
				events = nil
				if limit == nil {
					limit = time.After(stopLimit)
				}
				continue
			}
			switch e.Kind {
			case ctlproto.CTL_EV_WARN:
				r.opts.Tell(e.Text)
			case ctlproto.CTL_EV_EXIT:
				was := endOf(syscall.WaitStatus(e.Arg))
				end = &was
				limit = time.After(endLimit)
				r.account(e.Text)
			case ctlproto.CTL_EV_PANIC:
				problem = &PanicError{e.Text}
				limit = time.After(endLimit)
				r.stopPanicked(ctx)
			}
		case <-r.host.exited:
			// What it said last may still be on its way: to the end of it.
			for e := range drained(events) {
				switch e.Kind {
				case ctlproto.CTL_EV_EXIT:
					was := endOf(syscall.WaitStatus(e.Arg))
					end = &was
					r.account(e.Text)
				case ctlproto.CTL_EV_PANIC:
					problem = &PanicError{e.Text}
				case ctlproto.CTL_EV_WARN:
					r.opts.Tell(e.Text)
				}
			}
			switch {
			case problem != nil:
				return End{}, problem
			case end != nil:
				return *end, nil
			}
			return End{}, fmt.Errorf("the stack host (pid %d) %s, so the command was killed", r.state.HostPID, r.host.end())
		case <-limit:
			switch {
			case problem != nil:
				return End{}, problem
			case end != nil:
				// The target's end counts; that the stack hangs is told.
				r.opts.Tell("the stack host did not end in time and was killed: data the command sent last may be lost")
				return *end, nil
			}
			return End{}, errors.New("the stack host closed its connection but goes on, so it and the command were killed")
		case <-ctx.Done():
			return End{}, context.Cause(ctx)
		}
	}
}

// drained is events, or a channel that is closed already.
func drained(events <-chan ctlproto.Event) <-chan ctlproto.Event {
	if events != nil {
		return events
	}
	none := make(chan ctlproto.Event)
	close(none)
	return none
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
