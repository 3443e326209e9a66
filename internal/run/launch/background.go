// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/reap"
	"github.com/lklrun/lklrun/pkg/config"
)

// stopGrace is how long the target's remaining processes may take to end after
// lklrun is told to stop.
const stopGrace = 5 * time.Second

// redirect replaces the standard streams of this process, which the target
// inherits, by streams that belong to no terminal.
func (r *run) redirect() error {
	out := r.opts.Output
	if out == nil {
		var err error
		out, err = os.OpenFile(r.dir.File(instance.OutputFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("opening the file for the output: %w", err)
		}
	}
	defer out.Close()
	in, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer in.Close()
	for fd, f := range []*os.File{in, out, out} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return fmt.Errorf("redirecting descriptor %d to %s: %w", fd, f.Name(), err)
		}
	}
	return nil
}

// started reports, once, that the target runs.
func (r *run) started() {
	if err := reap.WriteTree(r.dir, r.state.TargetPID); err != nil {
		r.log.Debug("writing down the program's processes", "error", err)
	}
	if r.opts.Started != nil {
		r.opts.Started(r.dir.Name)
		r.opts.Started = nil
	}
}

// released reports the start under the engine preload. There the target's
// program starts before its kernel, so no event reports it.
func (r *run) released() {
	if r.plan.Engine == config.EnginePreload {
		r.started()
	}
}

// stopRest ends the rest of the run after its first process has ended: other
// processes, or the wait for sent data to drain. The first process is gone, so
// a signal to it would have no effect.
func (r *run) stopRest(sig syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := r.conn.Stop(ctx, sig, stopGrace); err != nil {
		r.log.Debug("stopping what is left of the command", "error", err)
	}
}
