// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lklrun/lklrun/internal/stackconn"
)

// restoreLimit bounds what is taken back at the end.
const restoreLimit = 10 * time.Second

// Hooks tell of a script while it goes on; all may be nil.
type Hooks struct {
	Now  func(elapsed time.Duration) // with each look
	Done func(Done)                  // with each step
}

// Run makes the steps of a script at their times and looks at the connections
// meanwhile. In the end, and when ctx is done before, the interfaces are as they
// were, and the timeline tells of the time until then. An error says what could
// not be done; the timeline is nil when it never began.
func (s *Script) Run(ctx context.Context, conn *stackconn.Conn, instance string, hooks Hooks) (t *Timeline, err error) {
	paths, err := Open(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer paths.Close()
	steps := make([]Step, len(s.Steps))
	for i, step := range s.Steps {
		steps[i] = step.Step
	}
	before, err := paths.Check(steps...)
	if err != nil {
		return nil, err
	}
	w := newWatcher(conn, instance)
	if err := w.addresses(ctx); err != nil {
		return nil, err
	}
	heard, err := w.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore(ctx, conn, before)) }()
	err = s.follow(ctx, paths, w, hooks)
	switch {
	case ctx.Err() != nil:
		w.t.Stopped, err = "interrupted", nil
	case errors.Is(err, stackconn.ErrClosed):
		w.t.Stopped, err = "the instance has ended", nil
	case err != nil:
		w.t.Stopped = err.Error()
	}
	heard()
	err = errors.Join(err, s.last(ctx, w))
	w.t.Seconds = w.now()
	w.t.finish()
	return w.t, err
}

// follow is the time from a script's start to its end.
func (s *Script) follow(ctx context.Context, paths *Paths, w *watcher, hooks Hooks) error {
	look := time.NewTicker(s.interval())
	defer look.Stop()
	end := time.NewTimer(s.End)
	defer end.Stop()
	if err := w.look(ctx); err != nil {
		return err
	}
	for next := 0; ; {
		var step <-chan time.Time
		var timer *time.Timer
		if next < len(s.Steps) {
			timer = time.NewTimer(s.Steps[next].At - time.Since(w.began))
			step = timer.C
		}
		var err error
		select {
		case <-step:
			err = w.step(paths, s.Steps[next], next, hooks)
			next++
		case <-look.C:
			// One that was held up is followed by the next too soon to tell a rate.
			if last := w.t.Times[len(w.t.Times)-1]; w.now()-last > s.interval().Seconds()/2 {
				err = w.look(ctx)
			}
			if hooks.Now != nil {
				hooks.Now(time.Since(w.began))
			}
		case <-end.C:
			if next == len(s.Steps) { // else the last step is due, too
				return nil
			}
			end.Reset(time.Millisecond)
		case <-ctx.Done():
			return ctx.Err()
		case <-w.conn.Done():
			return stackconn.ErrClosed
		}
		if timer != nil {
			timer.Stop()
		}
		if err != nil {
			return err
		}
	}
}

// last looks once more, also when ctx is done, unless it has just been done.
func (s *Script) last(ctx context.Context, w *watcher) error {
	if w.conn.Err() != nil || len(w.t.Times) == 0 || w.now()-w.t.Times[len(w.t.Times)-1] < s.interval().Seconds()/2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
	defer cancel()
	if err := w.look(ctx); err != nil && !errors.Is(err, stackconn.ErrClosed) {
		return err
	}
	return nil
}

// step makes a step and notes it.
func (w *watcher) step(paths *Paths, s TimedStep, n int, hooks Hooks) error {
	err := paths.Do(s.Step)
	d := Done{Mark: mark(n), Planned: s.At.Seconds(), At: w.now(), Iface: s.Iface, Step: s.Words}
	if err != nil {
		d.Error = err.Error()
	}
	w.t.Steps = append(w.t.Steps, d)
	if hooks.Done != nil {
		hooks.Done(d)
	}
	if err != nil {
		return fmt.Errorf("at %.1fs, %s %s: %w", d.At, s.Iface, s.Words, err)
	}
	return nil
}

// mark is the letter of a step: a to z, then a again.
func mark(n int) string { return string(rune('a' + n%26)) }

// restore has the interfaces be as they were, also when ctx is done. When the
// stack is gone, so is what was done to them.
func restore(ctx context.Context, conn *stackconn.Conn, before []Path) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
	defer cancel()
	p, err := Open(ctx, conn)
	if err == nil {
		defer p.Close()
		for _, was := range before {
			err = errors.Join(err, p.Restore(was))
		}
	}
	if errors.Is(err, stackconn.ErrClosed) {
		return nil
	}
	return err
}

// For makes a step and takes it back after d, or when ctx is done.
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
	if err := p.Do(s); err != nil {
		if ctx.Err() != nil {
			err = nil // done in the middle of the step is done all the same
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
