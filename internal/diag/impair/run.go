// SPDX-License-Identifier: Apache-2.0

package impair

import (
	"context"
	"errors"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// restoreLimit bounds the time for restoring an interface at the end.
const restoreLimit = 10 * time.Second

// restore restores an interface, even if ctx is done. If the stack has ended, restore
// does nothing.
func restore(ctx context.Context, conn *stackconn.Conn, before Path) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
	defer cancel()
	p, err := Open(ctx, conn)
	if err == nil {
		defer p.Close()
		err = p.Restore(before)
	}
	if errors.Is(err, stackconn.ErrClosed) {
		return nil
	}
	return err
}

// For performs a step and undoes it after the duration d, or when ctx is done.
func For(ctx context.Context, conn *stackconn.Conn, s Step, d time.Duration) error {
	p, err := Open(ctx, conn)
	if err != nil {
		return err
	}
	defer p.Close()
	before, err := p.Check(s)
	if err != nil {
		return err
	}
	if err := p.Apply(s); err != nil {
		if ctx.Err() != nil {
			err = nil // ctx ended during the step, but the step is complete
		}
		return errors.Join(err, restore(ctx, conn, before))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-conn.Done():
		return nil
	}
	return restore(ctx, conn, before)
}
