// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// After a kernel panic, lklrun writes a report for diagnosis. A dead kernel
// cannot report its sockets and counters, so lklrun samples them at intervals
// while it runs.

const (
	// lookEvery is the interval between two samples. A sample costs lklhost
	// 3 ms of CPU time with 2 sockets and 10 ms with 1939 (schedstat of
	// proc(5) over 50 samples): at most a third of a thousandth of a core.
	lookEvery = 30 * time.Second
	lookLimit = 5 * time.Second

	// lookShare spaces out expensive samples: the pause after one lasts
	// lookShare times as long as it took, but at most lookMost. With 10,500
	// connections on one busy CPU, a sample took 0.12 s of it. Half of that
	// was in the stack, which does nothing else meanwhile.
	lookShare = 200
	lookMost  = 5 * time.Minute
)

// firstLooks are the delays before each of the first samples. Many panics come
// early.
var firstLooks = []time.Duration{time.Second, 4 * time.Second, 10 * time.Second}

// looker is the service that takes the samples.
type looker struct {
	r      *run
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	last *crash.Look
}

// lookers returns the service if the run has its own kernel, which can panic.
func lookers(r *run) service {
	if r.plan.Stack.Library == "" {
		return nil
	}
	r.looks = &looker{r: r}
	return r.looks
}

// Start starts the sampling.
func (l *looker) Start(ctx context.Context) error {
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		var took time.Duration
		for n := 0; ; n++ {
			select {
			case <-time.After(nextLook(n, took)):
				began := time.Now()
				l.take(ctx)
				took = time.Since(began)
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// nextLook returns the delay before sample n, counted from 0. The duration of
// the previous sample is took.
func nextLook(n int, took time.Duration) time.Duration {
	after := lookEvery
	if n < len(firstLooks) {
		after = firstLooks[n]
	}
	return max(after, min(lookShare*took, lookMost))
}

// Stop ends the sampling.
func (l *looker) Stop() {
	l.cancel()
	<-l.done
}

// take takes one sample. If the stack does not answer, the last sample stays.
func (l *looker) take(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	look, err := crash.Now(ctx, l.r.conn)
	if err != nil {
		l.r.log.Debug("no look at the stack's sockets", "error", err)
		return
	}
	l.mu.Lock()
	l.last = look
	l.mu.Unlock()
	l.r.log.Debug("a look at the stack, for a panic", "sockets", len(look.Sockets), "took", time.Since(look.Time).Round(time.Microsecond))
}

func (l *looker) get() *crash.Look {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// gather builds the report of a panicked kernel, while lklhost still answers
// and the run directory exists.
func (r *run) gather(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	b := crash.New(r.dir.Name, why, time.Now())
	b.AddKept(ctx, r.conn)
	r.stating.Lock()
	state := r.state
	r.stating.Unlock()
	b.AddRun(r.dir.Path, &state)
	b.AddStats(ctx, r.conn)
	if look := r.looks.get(); look != nil {
		b.AddLook(look, "at "+look.Time.Format(time.RFC3339)+", the last look before the panic")
	} else {
		b.Miss("sockets.json, counters.txt", errors.New("the kernel panicked before the first look at them"))
	}
	r.recorder.AddTo(ctx, b)
	r.post = b
}

// gatherLate is like gather, for a panic that made a step of the start fail.
func (r *run) gatherLate(ctx context.Context) {
	if r.post != nil || r.conn == nil || r.dir == nil || r.host.Unresponsive {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if h, err := r.conn.Refresh(ctx); err == nil && h.State == ctlproto.CTL_STATE_PANICKED {
		r.gather(ctx, "the stack's kernel panicked")
	}
}

// keepReport writes the report after everything else is undone, so that a slow
// disk delays nothing. The result is reported together with the panic.
func (r *run) keepReport(err error) {
	var p *PanicError
	if r.post == nil || !errors.As(err, &p) {
		return
	}
	path, kerr := r.post.Keep()
	p.Bundle = path
	if kerr != nil {
		p.NoBundle = text.OneLine(kerr.Error())
	}
}

// writePlan writes the plan into the run directory, for reports.
func (r *run) writePlan() error {
	shown := *r.plan
	shown.Command = crash.Words(shown.Command)
	shown.Sysctls = slices.Clone(shown.Sysctls)
	for i := range shown.Sysctls {
		shown.Sysctls[i].Value = crash.Setting(shown.Sysctls[i].Name, shown.Sysctls[i].Value)
	}
	return r.dir.WriteJSON(instance.PlanFile, shown)
}
