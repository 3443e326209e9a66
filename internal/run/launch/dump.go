// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// dumpLimit bounds the reading of all files at the target's end.
const dumpLimit = 2 * time.Second

// mount mounts the file systems of the plan in the stack, each at a directory
// named after its type. Existing mounts stay.
func (r *run) mount(ctx context.Context) error {
	for _, fs := range r.plan.Mount {
		path := "/" + fs
		if err := r.conn.Mkdir(ctx, path); errors.Is(err, syscall.EEXIST) {
			continue
		} else if err != nil {
			return err
		}
		if err := r.conn.Mount(ctx, fs, path); err != nil {
			return refused(fmt.Errorf("mount %s: the stack has no such file system: %w", fs, err))
		}
	}
	return nil
}

// delay waits for the plan's delay before the target starts.
func (r *run) delay(ctx context.Context) error {
	if r.plan.Delay == 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(r.plan.Delay) * time.Microsecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dump prints files of the stack after the target has ended.
type dump struct{ r *run }

func dumps(r *run) service {
	if len(r.plan.Dump) == 0 {
		return nil
	}
	return &dump{r}
}

// Start does nothing: only at the end is it known whether a file exists.
func (d *dump) Start(context.Context) error { return nil }

// Stop prints the files.
func (d *dump) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), dumpLimit)
	defer cancel()
	for _, path := range d.r.plan.Dump {
		d.r.opts.Tell(path + ":")
		if err := d.r.conn.CopyFile(ctx, path, os.Stderr); err != nil {
			d.r.opts.Tell(err.Error())
		}
	}
}
