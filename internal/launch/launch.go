// SPDX-License-Identifier: Apache-2.0

// Package launch carries a plan out: it takes the steps in their order, watches
// the run, and takes everything back in the reverse order, whatever happens.
//
//	plan ─► steps ─► watch ─► end lklhost ─► reap ─► replay journal ─► remove directory
//	          └── an error or a signal ──┘
//
// Each of lklrun and lklhost does the other's part when that dies: an end of the
// control connection tells. See ARCHITECTURE.md, "From a command line to an exit
// status".
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/ask"
	"github.com/lklrun/lklrun/internal/bundle"
	"github.com/lklrun/lklrun/internal/ctlproto"
	"github.com/lklrun/lklrun/internal/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/plan"
	"github.com/lklrun/lklrun/internal/stackconn"
)

const (
	// startLimit bounds everything up to the release of the target.
	startLimit = 60 * time.Second

	// endLimit bounds what lklhost may take after the target's end: killing
	// what is left of it (5 s) and letting sent data drain (60 s, or 3 s in which
	// no peer takes any), in csrc/host.
	endLimit = 70 * time.Second

	// answerLimit is how long lklhost may leave a greeting unanswered.
	answerLimit = 5 * time.Second

	// stopLimit bounds the wait for lklhost when a start is given up.
	stopLimit = 5 * time.Second
)

// Options are what a run needs beside its plan.
type Options struct {
	HostPath    string       // lklhost, from FindHost
	PreloadPath string       // the library of that engine, from FindPreload
	Log         *slog.Logger // steps and their times
	Tell        func(string) // a line for the user
	Quiet       bool         // leave out the plan's notes
	Report      func(Report) // what the run has cost, at its end; may be nil

	// In the background the target's input is empty, and its output goes to
	// Output, or to a file in the run directory.
	Background bool
	Output     *os.File
	Started    func(name string) // once the target runs; may be nil
}

// run is a run in progress.
type run struct {
	plan *plan.Plan
	opts Options
	log  *slog.Logger

	spared     map[int]bool // children that were there before
	dir        *instance.Dir
	journal    *journal
	state      instance.State
	stating    sync.Mutex // held while state changes, once there are services
	host       *host
	conn       *stackconn.Conn // once greeted
	events     <-chan ctlproto.Event
	signals    *signals
	sharing    sharing
	live       live
	leased     leasers
	asked      ask.Mux  // what lklctl may ask
	stopAsking func()   // nil: questions are not answered yet
	account    *account // once the target has ended
	deaf       bool     // lklhost does not answer
	captures   []*recording
	paths      *pathKeeper // once the stack is configured
	reporter   *reporter   // nil: nobody wants to know
	looks      *looker     // likewise; nil: the kernel is not ours
	post       *bundle.Bundle
}

// Run carries p out and returns how its target ended. An error means that
// lklrun itself could not do its part; all is undone then, too.
func Run(ctx context.Context, p *plan.Plan, opts Options) (exit.End, error) {
	r := &run{plan: p, opts: opts, log: opts.Log}
	start, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start, stop := context.WithTimeoutCause(start, startLimit, fmt.Errorf("the start took longer than %v", startLimit))
	defer stop()
	r.signals = catchSignals(cancel)
	defer r.signals.stop()

	var err error
	if r.spared, err = children(); err != nil {
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
	r.reporter.tell()
	err = errors.Join(r.better(err), undone)
	r.keepBundle(err)
	var sig *SignalError
	if errors.As(err, &sig) {
		return exit.End{Signal: sig.Signal}, nil
	}
	if err == nil && end == (exit.End{}) {
		if unmet := r.account.unmet(p.Require); unmet != "" {
			opts.Tell(fmt.Sprintf("--require %s: %s", p.Require, unmet))
			end.Status = ExitUnmet
		}
	}
	return end, err
}

// take takes the plan's steps.
func (r *run) take(ctx context.Context) error {
	for _, s := range r.plan.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		began := time.Now()
		if err := r.step(ctx, s); err != nil {
			if ctx.Err() != nil { // the cause, not its consequence
				return context.Cause(ctx)
			}
			return err
		}
		r.log.Debug(s.Do, "step", s.Kind, "took", time.Since(began).Round(time.Microsecond))
	}
	return nil
}

// better puts a panic in the place of an error that is its consequence: a
// request that got no answer. lklhost has ended by now, so all it said is here.
func (r *run) better(err error) error {
	var sig *SignalError
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
		return r.share(ctx)
	case plan.Gateway, plan.Tap, plan.FD, plan.Device:
		l, err := r.open(ctx, &r.plan.Links[s.Link], nil)
		if err == nil {
			r.live.put(l)
		}
		return err
	case plan.Boot:
		return r.boot(ctx)
	case plan.Capture:
		return r.startCaptures(ctx)
	case plan.Configure:
		return r.configure(ctx)
	case plan.Lease:
		return r.awaitLeases(ctx)
	case plan.Release:
		return r.release(ctx)
	}
	return fmt.Errorf("unknown step %q", s.Kind)
}

// makeDir makes the run directory and what belongs in it from the start. A
// leftover of the same name is cleaned up first.
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
		if err := takeOver(ctx, r.dir); err != nil {
			r.dir.Release() // and it stays: it is the other run's
			name := r.dir.Name
			r.dir = nil
			return &RefusedError{fmt.Errorf("an earlier run called %q is not cleaned up: %w; or choose another --name", name, err)}
		}
		if err := r.dir.Reset(); err != nil {
			return err
		}
	}
	if r.journal, err = openJournal(r.dir); err != nil {
		return err
	}
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

// changeState changes what others read of the run.
func (r *run) changeState(change func(*instance.State)) error {
	r.stating.Lock()
	defer r.stating.Unlock()
	change(&r.state)
	return r.dir.WriteState(&r.state)
}

func (r *run) startHost(ctx context.Context) error {
	h, err := startHost(ctx, r.opts, r.plan, r.dir, r.log)
	if err != nil {
		return err
	}
	r.host = h
	return nil
}

// boot hands the links over and starts the kernel.
func (r *run) boot(ctx context.Context) error {
	if err := r.host.ready(ctx); err != nil {
		return err
	}
	r.conn = r.host.conn
	hello := r.conn.Hello()
	r.log.Debug("lklhost answers", "pid", hello.HostPID, "target", hello.TargetPID)
	r.state.HostPID, r.state.TargetPID = int(hello.HostPID), int(hello.TargetPID)
	var err error
	// Not ctx: the events are for the whole run and end with the connection.
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

// release lets the target run. State is written first: nothing that can fail
// comes afterwards.
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
	// A handle, not a number: the target may end at any moment from now on.
	target, err := os.FindProcess(r.state.TargetPID)
	if err != nil {
		return fmt.Errorf("looking for the target: %w", err)
	}
	if err := r.signals.release(ctx, target, r.stopRest); err != nil {
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
	if err := r.startReport(ctx); err != nil {
		return err
	}
	if _, err = r.conn.Go(ctx, g); err != nil {
		return err
	}
	r.released()
	r.startAsking()
	return nil
}

// teardown takes everything back; each part happens whatever became of the
// ones before.
func (r *run) teardown(ctx context.Context) error {
	began := time.Now()
	var errs []error
	if r.deaf { // nor does anybody wait for its answers
		r.conn.Close()
	}
	if r.stopAsking != nil {
		r.stopAsking()
	}
	r.stopServing()
	if r.host != nil {
		errs = append(errs, r.endHost(), killDescendants(r.spared))
	}
	r.endCaptures()
	for _, l := range r.live.all() {
		l.release()
	}
	if r.journal != nil {
		r.journal.close()
	}
	if r.dir != nil {
		errs = append(errs, finish(r.dir, func() error { return replay(context.WithoutCancel(ctx), r.dir) }))
	}
	r.log.Debug("all is undone", "took", time.Since(began).Round(time.Microsecond))
	return errors.Join(errs...)
}

// endHost ends an lklhost that still runs: kindly, so that it halts its kernel,
// then by force.
func (r *run) endHost() error {
	select {
	case <-r.host.exited:
	case <-r.host.connected:
		if r.host.conn != nil && !r.deaf {
			r.stopHost()
		}
	default: // not even greeted yet
	}
	err := r.host.kill()
	<-r.host.connected // its greeting has failed by now, or does within startLimit
	if r.host.conn != nil {
		r.host.conn.Close()
	}
	return err
}

func (r *run) stopHost() {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := r.host.conn.Stop(ctx, unix.SIGKILL, 0); err != nil {
		return
	}
	select {
	case <-r.host.exited:
	case <-ctx.Done():
	}
}
