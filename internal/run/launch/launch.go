// SPDX-License-Identifier: Apache-2.0

// Package launch carries out a plan. It performs the plan's steps in order, watches the
// run, and undoes all changes in reverse order, however the run ends.
//
//	plan ─► steps ─► watch ─► end lklhost ─► reap ─► replay journal ─► remove directory
//	          └── an error or a signal ──┘
//
// If lklrun or lklhost dies, the other detects this by the end of the control connection.
// It then performs the cleanup of the one that died. See ARCHITECTURE.md, "From a command
// line to an exit status".
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/diag/explain"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/autocapture"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/postmortem"
	"github.com/lklrun/lklrun/internal/run/reap"
	"github.com/lklrun/lklrun/internal/run/sharedaddr"
	"github.com/lklrun/lklrun/internal/run/signals"
	"github.com/lklrun/lklrun/internal/run/stackhost"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/run/usage"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// ExitUnmet is lklrun's exit status if the target ended with status 0 but did not use the
// stack as --require requires.
const ExitUnmet = 123

const (
	// startLimit bounds the whole start, up to the release of the target.
	startLimit = 60 * time.Second

	// endLimit bounds the time that lklhost may take after the target's end. lklhost
	// kills the remaining processes (5 s) and waits for sent data to drain (60 s, or
	// 3 s without progress at any peer); see csrc/host.
	endLimit = 70 * time.Second

	// collectAfter is the time after the start when the garbage collector begins to
	// work. A short run ends before that.
	collectAfter = 50 * time.Millisecond

	// answerLimit bounds the wait for lklhost's answer to a greeting.
	answerLimit = 5 * time.Second

	// stopLimit bounds the wait for lklhost when a start is aborted.
	stopLimit = 5 * time.Second
)

// Options are the parameters of a run that are not part of its plan.
type Options struct {
	HostPath    string                // path of lklhost from stackhost.Find
	PreloadPath string                // path of the engine's library from stackhost.FindPreload
	Log         *slog.Logger          // receives the steps and their durations
	Tell        func(string)          // prints a line for the user
	Quiet       bool                  // do not print the plan's notes
	Report      func(usage.Report)    // receives the costs of the run at its end; may be nil
	Explain     func(*explain.Report) // prints what limited the connections, if the plan requests it

	// Relay passes connections from the host's loopback interface to the stack.
	Relay bool

	// Background gives the target an empty standard input. Its output goes to Output.
	// If Output is nil, it goes to a file in the run directory.
	Background bool
	Output     *os.File
	NoRecord   bool              // leave no record of a run in the background
	Started    func(name string) // called once the target runs; may be nil
	Pod        *instance.Pod     // pod that the run serves; may be nil
}

// run is the state of a run in progress. The fields are its parts, in the order in which
// the steps create them. Each part has its own state and receives what it needs as
// arguments.
type run struct {
	plan        *plan.Plan
	opts        Options
	log         *slog.Logger
	signals     *signals.Catcher
	preexisting map[int]bool // children that existed before the run

	dir      *instance.Dir
	journal  *undo.Journal
	files    *files
	host     *stackhost.Process
	sharing  sharedaddr.Sharing // state of the addresses that are shared with the host
	conn     *stackconn.Conn    // set after the greeting
	events   <-chan ctlproto.Event
	links    links
	keys     *os.File // TLS secrets of the programs; nil: not requested
	recorder autocapture.Recorder
	services services
	sampler  *postmortem.Sampler // nil if it has not started, or if the kernel is the host's
	meter    *usage.Meter        // nil if no report was requested
	asked    questions
	notes    []string // messages about this run, in addition to the plan's notes
	hinted   bool     // the user knows how to reach the host's loopback interface

	account *account.Final // set after the target's end
	post    *crash.Report  // set after a panic
}

// Run carries out p and returns how its target ended. An error means that lklrun itself
// failed. Run undoes all changes in that case, too.
func Run(ctx context.Context, p *plan.Plan, opts Options) (exit.End, error) {
	r := &run{plan: p, opts: opts, log: opts.Log}
	start, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start, stop := context.WithTimeoutCause(start, startLimit, fmt.Errorf("the start took longer than %v", startLimit))
	defer stop()
	r.signals = signals.Catch(cancel)
	defer r.signals.Stop()

	var end exit.End
	// A start allocates few megabytes. The collector would run several times, each time
	// on both CPUs, while lklhost and the stack also start.
	collect := debug.SetGCPercent(-1)
	err := r.take(start)
	time.AfterFunc(collectAfter, func() { debug.SetGCPercent(collect) })
	if err == nil {
		end, err = r.watch(ctx)
	}
	if err != nil {
		r.gatherLate(ctx)
	}
	stopped := r.teardown(ctx)
	if r.meter != nil {
		opts.Report(r.meter.Report(r.account))
	}
	end, err = r.result(end, errors.Join(r.panicCause(err), stopped))
	r.keepRecord(end, err)
	undone := r.undo(ctx)
	r.keepBundle(err)
	return end, errors.Join(err, undone)
}

// take performs the plan's steps in order.
func (r *run) take(ctx context.Context) (err error) {
	if r.preexisting, err = reap.Children(); err != nil {
		return err
	}
	for _, s := range r.plan.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		began := time.Now()
		if err := r.step(ctx, s); err != nil {
			if ctx.Err() != nil { // return the cause instead of its consequence
				return context.Cause(ctx)
			}
			return err
		}
		r.log.Debug(s.Do, "step", s.Kind, "took", elapsed(began))
	}
	return nil
}

func (r *run) step(ctx context.Context, s plan.Step) error {
	switch s.Kind {
	case plan.RunDir:
		return r.makeDir(ctx)
	case plan.Host:
		return r.startHost(ctx)
	case plan.Guard:
		return r.sharing.Reserve(ctx)
	case plan.OpenLink:
		l, err := r.links.open(ctx, r.plan.Links[s.Link], nil)
		if err == nil {
			r.links.put(l)
		}
		return err
	case plan.Boot:
		return r.boot(ctx)
	case plan.Capture:
		return r.record(ctx)
	case plan.Configure:
		return r.configure(ctx)
	case plan.Lease:
		return r.links.awaitLeases(ctx)
	case plan.Release:
		return r.release(ctx)
	}
	return fmt.Errorf("unknown step %q", s.Kind)
}

// elapsed returns the time since began, for the log.
func elapsed(began time.Time) time.Duration {
	return time.Since(began).Round(time.Microsecond)
}

// teardown ends all processes of the run. It continues if one part fails.
func (r *run) teardown(ctx context.Context) error {
	began := time.Now()
	var errs []error
	if r.host != nil && r.host.Unresponsive { // do not wait for the stack's answers either
		r.conn.Close()
	}
	r.asked.end()
	r.stopServing()
	served := time.Now()
	r.log.Debug("the services of the run have ended", "took", elapsed(began))
	if r.host != nil {
		errs = append(errs, r.host.Stop(), reap.KillDescendants(r.others()))
		r.log.Debug("lklhost has ended", "took", elapsed(served))
	}
	r.recorder.End()
	r.keys.Close() // nil is valid
	for _, l := range r.links.all() {
		l.host.Release()
	}
	if r.journal != nil {
		r.journal.Close()
	}
	r.log.Debug("all processes have ended", "took", elapsed(began))
	return errors.Join(errs...)
}

// others returns the children that do not end with lklhost.
func (r *run) others() map[int]bool {
	all := maps.Clone(r.preexisting)
	for _, l := range r.links.all() {
		if l.host.PID != nil {
			all[l.host.PID()] = true
		}
	}
	return all
}

// undo undoes all changes to the host, and removes the run directory.
func (r *run) undo(ctx context.Context) error {
	if r.dir == nil {
		return nil
	}
	began := time.Now()
	err := undo.Finish(r.dir, func() error { return undo.Replay(context.WithoutCancel(ctx), r.dir) })
	r.log.Debug("all changes to the host are undone", "took", elapsed(began))
	return err
}

// panicCause returns the kernel panic that caused err, if there was one. A panic makes
// pending requests fail. lklhost has ended by now, so all its events have arrived.
func (r *run) panicCause(err error) error {
	var sig *signals.AbortError
	if err == nil || r.events == nil || errors.As(err, &sig) {
		return err
	}
	for e := range r.events {
		if e.Kind == ctlproto.CTL_EV_PANIC {
			err = &PanicError{Text: e.Text}
		}
	}
	return err
}

// result returns how lklrun ends. lklrun ends as its target did, except in two cases: a
// signal aborted the start, or the target did not use the stack as --require requires.
func (r *run) result(end exit.End, err error) (exit.End, error) {
	var sig *signals.AbortError
	if errors.As(err, &sig) {
		return exit.End{Signal: sig.Signal}, nil
	}
	if err == nil && end == (exit.End{}) {
		if unmet := r.account.Unmet(r.plan.Require); unmet != "" {
			r.opts.Tell(fmt.Sprintf("--require %s: %s", r.plan.Require, unmet))
			end.Status = ExitUnmet
		}
	}
	return end, err
}
