// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/autocapture"
	"github.com/lklrun/lklrun/internal/run/lease"
	"github.com/lklrun/lklrun/internal/run/reap"
	"github.com/lklrun/lklrun/internal/run/sharedaddr"
	"github.com/lklrun/lklrun/internal/run/stackhost"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/run/usage"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

// makeDir creates the run directory and its initial content. If a leftover with
// the same name exists, makeDir first cleans it up.
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
			r.dir.Release() // do not remove the directory, which belongs to the other run
			name := r.dir.Name
			r.dir = nil
			return exit.Usagef("the earlier run %q is not cleaned up: %w; or choose another --name", name, err)
		}
		if err := r.dir.Reset(); err != nil {
			return err
		}
	}
	if r.journal, err = undo.Open(r.dir); err != nil {
		return err
	}
	r.sharing.Options = sharedaddr.Options{Plan: r.plan, Dir: r.dir, Journal: r.journal.Add, Log: r.log, Tell: r.opts.Tell}
	if r.opts.Background {
		if err := redirect(r.opts.Output, r.dir); err != nil {
			return err
		}
	}
	if r.files, err = writeFiles(r.dir, r.plan, r.opts.Pod, r.log); err != nil {
		return err
	}
	if r.plan.TLSKeys {
		if r.keys, err = r.dir.MakeKeys(r.plan.User); err != nil {
			return fmt.Errorf("--tls-keys: %w", err)
		}
	}
	r.links.plan, r.links.journal, r.links.files = r.plan, r.journal, r.files
	r.links.log, r.links.tell = r.log, r.opts.Tell
	r.links.env = link.Env{
		Dir: r.dir.Path, Library: r.plan.Stack.Library, Spin: r.plan.Spin, User: r.plan.User, Log: r.log, Notify: r.opts.Tell, Guard: r.sharing.Guard, Share: r.sharing.Share,
		UndosOfOthers: func(op string) ([]netdev.Undo, error) { return undo.Others(r.dir, op, r.log) },
		Note: func(text string) {
			if !r.opts.Quiet {
				r.opts.Tell(text)
			}
		},
	}
	return nil
}

// startHost starts lklhost, which forks the target. While lklhost starts, the run is described
// to other processes.
func (r *run) startHost(ctx context.Context) (err error) {
	r.host, err = stackhost.Start(ctx, stackhost.Options{Path: r.opts.HostPath, Preload: r.opts.PreloadPath, Plan: r.plan, Dir: r.dir, Log: r.log})
	if err != nil {
		return err
	}
	return r.files.describe()
}

// boot passes the links to lklhost and boots the kernel.
func (r *run) boot(ctx context.Context) error {
	var err error
	began := time.Now()
	if r.conn, err = r.host.Connect(ctx); err != nil {
		return err
	}
	r.links.conn = r.conn
	r.links.leases.Options = lease.Options{Conn: r.conn, Name: r.dir.Name, Log: r.log, Tell: r.opts.Tell, Changed: r.links.leasesChanged}
	hello := r.conn.Hello()
	r.log.Debug("lklhost is ready", "pid", hello.HostPID, "target", hello.TargetPID, "took", elapsed(began))
	r.files.set(func(s *instance.State) { s.HostPID, s.TargetPID = int(hello.HostPID), int(hello.TargetPID) })
	// ctx ends with the start. The events last for the whole run and end
	// with the connection.
	r.events, err = r.conn.Events(context.WithoutCancel(ctx), ctlproto.CTL_EV_EXIT|ctlproto.CTL_EV_PANIC|ctlproto.CTL_EV_WARN|ctlproto.CTL_EV_NOTE|ctlproto.CTL_EV_START|ctlproto.CTL_EV_SIGNAL|ctlproto.CTL_EV_REFUSED)
	if err != nil {
		return err
	}
	for _, l := range r.links.all() {
		if _, err := r.links.attach(ctx, l); err != nil {
			return err
		}
	}
	release, err := r.conn.Boot(ctx, r.plan.Stack.Mem, r.plan.Stack.Cmdline)
	if err != nil {
		return err
	}
	r.files.set(func(s *instance.State) { s.Kernel = release })
	r.log.Debug("the stack runs", "kernel", release)
	return nil
}

// record starts the plan's captures.
func (r *run) record(ctx context.Context) error {
	r.recorder.Options = autocapture.Options{
		Name: r.dir.Name, Socket: r.dir.File(instance.SocketFile), Links: r.plan.Links, Keys: r.keys, Log: r.log, Tell: r.opts.Tell,
	}
	return r.recorder.Start(ctx, r.plan.Captures)
}

// release lets the target run.
func (r *run) release(ctx context.Context) error {
	if err := r.links.awaitCLATs(ctx); err != nil {
		return err
	}
	if !r.opts.Quiet {
		notes := slices.Concat(r.plan.Notes, r.notes)
		if term.IsTerminal(int(os.Stderr.Fd())) { // a script's output has nothing that nobody asked for
			notes = append(notes, r.plan.Hints...)
		}
		for _, n := range notes {
			r.opts.Tell(n)
		}
	}
	if err := delay(ctx, r.plan.Delay); err != nil {
		return err
	}
	// Open a handle now. After the release the target may end at any
	// moment, and its PID may be reused.
	target, err := os.FindProcess(int(r.conn.Hello().TargetPID))
	if err != nil {
		return fmt.Errorf("looking for the target: %w", err)
	}
	if err := r.signals.Release(ctx, target, rest{r.conn, r.log}.stop); err != nil {
		return err
	}
	g := ctlproto.Go{SpinUS: uint32(r.plan.Spin), CoalesceUS: uint32(r.plan.Coalesce), Flags: ctlproto.CTL_GOF_ASK_END}
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
	r.links.nameProcesses(&owners.Finder{Conn: r.conn})
	if _, err = r.conn.Go(ctx, g); err != nil {
		return err
	}
	if r.plan.Engine == config.EnginePreload {
		// The target's program started before its kernel, so no event
		// reports the start.
		r.started()
	}
	r.startAsking()
	return nil
}

// measure reads the first values of the costs, if a report was requested. The
// meter stops before the other services.
func (r *run) measure(ctx context.Context) error {
	if r.opts.Report == nil {
		return nil
	}
	m := &usage.Meter{Options: usage.Options{Conn: r.conn, HostPID: int(r.conn.Hello().HostPID), Engine: r.plan.Engine, Log: r.log}}
	if err := m.Start(ctx); err != nil {
		return err
	}
	r.meter = m
	r.services.started(m)
	return nil
}

// started reports, once, that the target runs.
func (r *run) started() {
	if err := reap.WriteTree(r.dir, int(r.conn.Hello().TargetPID)); err != nil {
		r.log.Debug("recording the program's processes", "error", err)
	}
	if r.opts.Background {
		r.publish()
	}
	if _, err := (instance.Place{}).Forget(r.dir.Name); err != nil {
		r.log.Debug("deleting the record of an earlier run", "error", err)
	}
	if r.opts.Started != nil {
		r.opts.Started(r.dir.Name)
		r.opts.Started = nil
	}
}

// watch follows the run until lklhost has ended.
func (r *run) watch(ctx context.Context) (exit.End, error) {
	w := watcher{
		conn: r.conn, events: r.events, host: r.host, signals: r.signals, log: r.log, tell: r.opts.Tell,
		started: r.started, refused: r.refused, ended: r.ended, panicked: r.gather,
	}
	return w.watch(ctx)
}

// ended stores and logs the statistics that arrive with the target's end.
func (r *run) ended(text string) {
	r.meter.End()
	a, err := account.ParseFinal(text)
	if err != nil {
		r.log.Debug("no statistics for this run", "error", err)
	}
	if a == nil && err == nil {
		r.log.Debug("no statistics for this run: the program with the kernel was killed, or executed another program")
	}
	if r.account = a; a == nil || !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, line := range a.Lines() {
		r.log.Debug(line)
	}
}
