// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// stopGrace is the time that the target's remaining processes have to end after
// lklrun is told to stop.
const stopGrace = 5 * time.Second

// redirect replaces the standard streams of this process, which the target
// inherits, by streams without a terminal. The output goes to out. If out is
// nil, the output goes to a file in the run directory.
func redirect(out *os.File, dir *instance.Dir) error {
	if out == nil {
		var err error
		out, err = os.OpenFile(dir.File(instance.OutputFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("opening the output file: %w", err)
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

// rest is the remainder of a run whose first process has ended.
type rest struct {
	conn *stackconn.Conn
	log  *slog.Logger
}

// stop ends the remainder of a run: other processes, or the wait for sent data
// to drain. The first process has ended, so a signal to it would have no
// effect.
func (r rest) stop(sig syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := r.conn.Stop(ctx, sig, stopGrace); err != nil {
		r.log.Debug("killing the remaining processes of the command", "error", err)
	}
}
