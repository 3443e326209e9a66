// SPDX-License-Identifier: Apache-2.0

package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// restoreLimit bounds the time to restore the interfaces at the end.
const restoreLimit = 10 * time.Second

// Hooks report the progress of a script; all may be nil.
type Hooks struct {
	Now  func(elapsed time.Duration) // with each sample
	Done func(Done)                  // with each step
}

// Run makes the steps of a script at their times and samples the connections meanwhile.
// At the end, or when ctx is done, it restores the interfaces; the timeline then covers
// the time until then. If a step fails, Run returns the error. The timeline is nil if the
// script never started.
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

// follow runs a script from start to end.
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
			// After a delayed sample the next one comes too soon for a rate.
			if last := w.t.Times[len(w.t.Times)-1]; w.now()-last > s.interval().Seconds()/2 {
				err = w.look(ctx)
			}
			if hooks.Now != nil {
				hooks.Now(time.Since(w.began))
			}
		case <-end.C:
			if next == len(s.Steps) { // otherwise the last step is due, too
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

// last takes a final sample, even if ctx is done, unless one was just taken.
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

// step makes a step and records it.
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

// restore restores the interfaces, even if ctx is done. If the stack has ended, there is
// nothing to restore.
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
			err = nil // ctx ended during the step, which is complete all the same
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
