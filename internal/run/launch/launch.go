// SPDX-License-Identifier: Apache-2.0

// Package launch carries out a plan. It performs the plan's steps in order,
// watches the run, and undoes everything in reverse order, however the run
// ends.
//
//	plan ─► steps ─► watch ─► end lklhost ─► reap ─► replay journal ─► remove directory
//	          └── an error or a signal ──┘
//
// lklrun and lklhost each detect the other's death by the end of the control
// connection, and then do the other's part of the cleanup. See ARCHITECTURE.md,
// "From a command line to an exit status".
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/diag/ask"
	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/cost"
	"github.com/lklrun/lklrun/internal/run/lease"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/reap"
	"github.com/lklrun/lklrun/internal/run/record"
	"github.com/lklrun/lklrun/internal/run/share"
	"github.com/lklrun/lklrun/internal/run/signals"
	"github.com/lklrun/lklrun/internal/run/stackhost"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// ExitUnmet is lklrun's exit status if the target ended with status 0 but did
// not use the stack as --require demands.
const ExitUnmet = 123

const (
	// startLimit bounds the whole start, up to the release of the target.
	startLimit = 60 * time.Second

	// endLimit bounds the time that lklhost takes after the target's end.
	// lklhost kills the remaining processes (5 s) and lets sent data drain
	// (60 s, or 3 s without progress at any peer); see csrc/host.
	endLimit = 70 * time.Second

	// answerLimit bounds the wait for lklhost's answer to a greeting.
	answerLimit = 5 * time.Second

	// stopLimit bounds the wait for lklhost when a start is aborted.
	stopLimit = 5 * time.Second
)

// Options are the parameters of a run that are not part of its plan.
type Options struct {
	HostPath    string            // path of lklhost, from stackhost.Find
	PreloadPath string            // path of the library of the engine, from stackhost.FindPreload
	Log         *slog.Logger      // receives the steps and their durations
	Tell        func(string)      // prints a line for the user
	Quiet       bool              // do not print the plan's notes
	Report      func(cost.Report) // receives the costs of the run at its end; may be nil

	// Background gives the target an empty standard input. Its output goes
	// to Output or, if that is nil, to a file in the run directory.
	Background bool
	Output     *os.File
	Started    func(name string) // called once the target runs; may be nil
}

// run is the state of a run in progress.
type run struct {
	plan *plan.Plan
	opts Options
	log  *slog.Logger

	spared     map[int]bool // children that existed before the run
	dir        *instance.Dir
	journal    *undo.Journal
	state      instance.State
	stating    sync.Mutex // held while state changes, once services are running
	host       *stackhost.Process
	conn       *stackconn.Conn // set after the greeting
	events     <-chan ctlproto.Event
	signals    *signals.Catcher
	sharing    share.Sharing
	live       live
	leases     lease.Leases
	writing    sync.Mutex     // held while the leases are written to files
	asked      ask.Mux        // the questions that lklctl may ask
	stopAsking func()         // nil: questions are not answered yet
	account    *account.Final // set after the target's end
	recorder   record.Recorder
	paths      *pathKeeper // set once the stack is configured
	meter      *cost.Meter // nil: no report is wanted
	looks      *looker     // nil: not started, or the kernel is the host's
	post       *crash.Report
}

// Run carries out p and returns how its target ended. An error means that
// lklrun itself failed; everything is undone in that case too.
func Run(ctx context.Context, p *plan.Plan, opts Options) (exit.End, error) {
	r := &run{plan: p, opts: opts, log: opts.Log}
	start, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start, stop := context.WithTimeoutCause(start, startLimit, fmt.Errorf("the start took longer than %v", startLimit))
	defer stop()
	r.signals = signals.Catch(cancel)
	defer r.signals.Stop()

	var err error
	if r.spared, err = reap.Children(); err != nil {
		return exit.End{}, err
	}
	var end exit.End
	if err = r.take(start); err == nil {
		end, err = r.watch(ctx)
	}
	if err != nil {
		r.gatherLate(ctx)
	}
	undone := r.teardown(ctx)
	if r.meter != nil {
		opts.Report(r.meter.Report(r.account))
	}
	err = errors.Join(r.better(err), undone)
	r.keepReport(err)
	var sig *signals.AbortError
	if errors.As(err, &sig) {
		return exit.End{Signal: sig.Signal}, nil
	}
	if err == nil && end == (exit.End{}) {
		if unmet := r.account.Unmet(p.Require); unmet != "" {
			opts.Tell(fmt.Sprintf("--require %s: %s", p.Require, unmet))
			end.Status = ExitUnmet
		}
	}
	return end, err
}

// take performs the plan's steps.
func (r *run) take(ctx context.Context) error {
	for _, s := range r.plan.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		began := time.Now()
		if err := r.step(ctx, s); err != nil {
			if ctx.Err() != nil { // return the cause, not its consequence
				return context.Cause(ctx)
			}
			return err
		}
		r.log.Debug(s.Do, "step", s.Kind, "took", time.Since(began).Round(time.Microsecond))
	}
	return nil
}

// better replaces an error by the kernel panic that caused it, if there was
// one. A panic makes pending requests fail. lklhost has ended by now, so all
// its events have arrived.
func (r *run) better(err error) error {
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

func (r *run) step(ctx context.Context, s plan.Step) error {
	switch s.Kind {
	case plan.RunDir:
		return r.makeDir(ctx)
	case plan.Host:
		return r.startHost(ctx)
	case plan.Guard:
		return r.sharing.Reserve(ctx)
	case plan.Gateway, plan.Tap, plan.FD, plan.Device:
		l, err := r.open(ctx, &r.plan.Links[s.Link], nil)
		if err == nil {
			r.live.put(l)
		}
		return err
	case plan.Boot:
		return r.boot(ctx)
	case plan.Capture:
		return r.record(ctx)
	case plan.Configure:
		return r.configure(ctx)
	case plan.Lease:
		return r.awaitLeases(ctx)
	case plan.Release:
		return r.release(ctx)
	}
	return fmt.Errorf("unknown step %q", s.Kind)
}

// makeDir creates the run directory and its initial content. It first cleans up
// a leftover of the same name.
func (r *run) makeDir(ctx context.Context) error {
	var err error
	if r.plan.Name == "" {
		r.dir, err = instance.CreateAny(r.plan.BaseName)
	} else {
		r.dir, err = instance.Create(r.plan.Name)
	}
	if err != nil {
		return err
	}
	if r.dir.Leftover {
		if err := undo.TakeOver(ctx, r.dir); err != nil {
			r.dir.Release() // do not remove it: it belongs to the other run
			name := r.dir.Name
			r.dir = nil
			return &RefusedError{fmt.Errorf("an earlier run called %q is not cleaned up: %w; or choose another --name", name, err)}
		}
		if err := r.dir.Reset(); err != nil {
			return err
		}
	}
	if r.journal, err = undo.Open(r.dir); err != nil {
		return err
	}
	r.sharing.Options = share.Options{Plan: r.plan, Dir: r.dir, Journal: r.journal.Add, Log: r.log, Tell: r.opts.Tell}
	if r.opts.Background {
		if err := r.redirect(); err != nil {
			return err
		}
	}
	r.state = instance.State{
		Name: r.dir.Name, PID: os.Getpid(), Stack: r.plan.Stack.Name, Engine: r.plan.Engine,
		Started: time.Now(), Command: r.plan.Command, User: r.plan.User,
	}
	for i := range r.plan.Links {
		r.state.Interfaces = append(r.state.Interfaces, shown(&r.plan.Links[i]))
	}
	if err := r.dir.WriteState(&r.state); err != nil {
		return err
	}
	if err := r.writePlan(); err != nil {
		return err
	}
	if r.plan.Resolv == "" {
		return nil
	}
	return r.dir.WriteFile(instance.ResolvFile, []byte(r.plan.Resolv))
}

// changeState changes the published state of the run.
func (r *run) changeState(change func(*instance.State)) error {
	r.stating.Lock()
	defer r.stating.Unlock()
	change(&r.state)
	return r.dir.WriteState(&r.state)
}

func (r *run) startHost(ctx context.Context) (err error) {
	r.host, err = stackhost.Start(ctx, stackhost.Options{Path: r.opts.HostPath, Preload: r.opts.PreloadPath, Plan: r.plan, Dir: r.dir, Log: r.log})
	return err
}

// boot hands the links over to lklhost and boots the kernel.
func (r *run) boot(ctx context.Context) error {
	var err error
	if r.conn, err = r.host.Connect(ctx); err != nil {
		return err
	}
	r.leases.Options = lease.Options{Conn: r.conn, Name: r.dir.Name, Log: r.log, Tell: r.opts.Tell, Changed: r.leasesChanged}
	hello := r.conn.Hello()
	r.log.Debug("lklhost answers", "pid", hello.HostPID, "target", hello.TargetPID)
	r.state.HostPID, r.state.TargetPID = int(hello.HostPID), int(hello.TargetPID)
	// ctx ends with the start. The events are for the whole run and end
	// with the connection.
	r.events, err = r.conn.Events(context.WithoutCancel(ctx), ctlproto.CTL_EV_EXIT|ctlproto.CTL_EV_PANIC|ctlproto.CTL_EV_WARN|ctlproto.CTL_EV_NOTE|ctlproto.CTL_EV_START|ctlproto.CTL_EV_SIGNAL)
	if err != nil {
		return err
	}
	for _, l := range r.live.all() {
		if _, err := r.attach(ctx, l); err != nil {
			return err
		}
	}
	release, err := r.conn.Boot(ctx, r.plan.Stack.Mem, r.plan.Stack.Cmdline)
	if err != nil {
		return err
	}
	r.state.Kernel = release
	r.log.Debug("the stack runs", "kernel", release)
	return nil
}

// record starts the captures of the plan.
func (r *run) record(ctx context.Context) error {
	r.recorder.Options = record.Options{
		Name: r.dir.Name, Socket: r.dir.File(instance.SocketFile), Links: r.plan.Links, Log: r.log, Tell: r.opts.Tell,
	}
	return r.recorder.Start(ctx, r.plan.Captures)
}

// release lets the target run. The state is written first, so that nothing can
// fail after the release.
func (r *run) release(ctx context.Context) error {
	if err := r.changeState(func(*instance.State) {}); err != nil {
		return err
	}
	if !r.opts.Quiet {
		for _, n := range r.plan.Notes {
			r.opts.Tell(n)
		}
	}
	if err := r.delay(ctx); err != nil {
		return err
	}
	// A handle, not a pid: from now on the target may end at any moment.
	target, err := os.FindProcess(r.state.TargetPID)
	if err != nil {
		return fmt.Errorf("looking for the target: %w", err)
	}
	if err := r.signals.Release(ctx, target, r.stopRest); err != nil {
		return err
	}
	g := ctlproto.Go{SpinUS: uint32(r.plan.Spin), Flags: ctlproto.CTL_GOF_ASK_END}
	if r.plan.Stack.MPTCP {
		g.Flags |= ctlproto.CTL_GOF_MPTCP
	}
	if r.plan.WaitAll {
		g.Flags |= ctlproto.CTL_GOF_TREE
	}
	if r.plan.Resolv != "" {
		g.ResolvConf = r.dir.File(instance.ResolvFile)
	}
	if err := r.measure(ctx); err != nil {
		return err
	}
	if _, err = r.conn.Go(ctx, g); err != nil {
		return err
	}
	r.released()
	r.startAsking()
	return nil
}

// measure takes the first values of the costs, if a report is wanted. The meter
// stops before the other services.
func (r *run) measure(ctx context.Context) error {
	if r.opts.Report == nil {
		return nil
	}
	m := &cost.Meter{Options: cost.Options{Conn: r.conn, HostPID: r.state.HostPID, Engine: r.plan.Engine, Log: r.log}}
	if err := m.Start(ctx); err != nil {
		return err
	}
	r.meter = m
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	r.live.services = append(r.live.services, m)
	return nil
}

// teardown undoes everything. Each part is tried, even if earlier parts failed.
func (r *run) teardown(ctx context.Context) error {
	began := time.Now()
	var errs []error
	if r.host != nil && r.host.Unresponsive { // do not wait for its answers either
		r.conn.Close()
	}
	if r.stopAsking != nil {
		r.stopAsking()
	}
	r.stopServing()
	if r.host != nil {
		errs = append(errs, r.host.Stop(), reap.KillDescendants(r.spared))
	}
	r.recorder.End()
	for _, l := range r.live.all() {
		l.release()
	}
	if r.journal != nil {
		r.journal.Close()
	}
	if r.dir != nil {
		errs = append(errs, undo.Finish(r.dir, func() error { return undo.Replay(context.WithoutCancel(ctx), r.dir) }))
	}
	r.log.Debug("all is undone", "took", time.Since(began).Round(time.Microsecond))
	return errors.Join(errs...)
}
