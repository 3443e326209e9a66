// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// dumpLimit bounds the time for reading all files at the target's end.
const dumpLimit = 2 * time.Second

// mount mounts file systems in the stack. Each one is mounted at a directory
// named after its type. Existing mounts remain.
func mount(ctx context.Context, conn *stackconn.Conn, types []string) error {
	for _, fs := range types {
		path := "/" + fs
		if err := conn.Mkdir(ctx, path); errors.Is(err, syscall.EEXIST) {
			continue
		} else if err != nil {
			return err
		}
		if err := conn.Mount(ctx, fs, path); err != nil {
			return refused(fmt.Errorf("mount %s: the stack does not support this file system: %w", fs, err))
		}
	}
	return nil
}

// delay waits for usec microseconds before the target starts.
func delay(ctx context.Context, usec int) error {
	if usec == 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(usec) * time.Microsecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dump prints files of the stack after the target has ended.
type dump struct {
	conn  *stackconn.Conn
	paths []string
	tell  func(string)
}

func dumps(r *run) service {
	if len(r.plan.Dump) == 0 {
		return nil
	}
	return &dump{r.conn, r.plan.Dump, r.opts.Tell}
}

// Start does nothing, because only the end of the run shows whether a file
// exists.
func (d *dump) Start(context.Context) error { return nil }

// Stop prints the files.
func (d *dump) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), dumpLimit)
	defer cancel()
	for _, path := range d.paths {
		d.tell(path + ":")
		if err := d.conn.CopyFile(ctx, path, os.Stderr); err != nil {
			d.tell(err.Error())
		}
	}
}
