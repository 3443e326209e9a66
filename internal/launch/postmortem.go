// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/bundle"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/ctlproto"
	"github.com/lklrun/lklrun/internal/instance"
)

// What is left of a stack whose kernel has panicked: a bundle. The dead kernel
// tells nothing of its sockets and counters any more, so these are looked at now
// and then while it lives.

const (
	// lookEvery is the time between two looks. One costs lklhost 3 ms of processor
	// time with 2 sockets and 10 ms with 1939 (schedstat of proc(5) over 50 looks): a
	// third of a thousandth of a core at most.
	lookEvery = 30 * time.Second
	lookLimit = 5 * time.Second

	// lookShare is how many times as long as a look took there is none after it, for
	// lookMost at most. With 10,500 connections on one busy processor one took 0.12 s
	// of it, half of that in the stack, which does nothing else meanwhile.
	lookShare = 200
	lookMost  = 5 * time.Minute
)

// firstLooks are when, after the start, the first looks are taken: many panics
// come early.
var firstLooks = []time.Duration{time.Second, 4 * time.Second, 10 * time.Second}

// looker is the service that takes them.
type looker struct {
	r      *run
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	last *bundle.Look
}

// lookers makes it where there is a kernel of the run's own that can panic.
func lookers(r *run) service {
	if r.plan.Stack.Library == "" {
		return nil
	}
	r.looks = &looker{r: r}
	return r.looks
}

// Start begins to look.
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

// nextLook is how long to wait for look n, from 0, when the one before took so long.
func nextLook(n int, took time.Duration) time.Duration {
	after := lookEvery
	if n < len(firstLooks) {
		after = firstLooks[n]
	}
	return max(after, min(lookShare*took, lookMost))
}

// Stop ends it.
func (l *looker) Stop() {
	l.cancel()
	<-l.done
}

// take takes one look; a stack that does not answer keeps the last one.
func (l *looker) take(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	look, err := bundle.Now(ctx, l.r.conn)
	if err != nil {
		l.r.log.Debug("no look at the stack's sockets", "error", err)
		return
	}
	l.mu.Lock()
	l.last = look
	l.mu.Unlock()
	l.r.log.Debug("a look at the stack, for a panic", "sockets", len(look.Sockets), "took", time.Since(look.Time).Round(time.Microsecond))
}

func (l *looker) get() *bundle.Look {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// gather makes the bundle of a kernel that has panicked, while lklhost still
// answers and the run directory is there.
func (r *run) gather(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	b := bundle.New(r.dir.Name, why, time.Now())
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
	r.addPackets(ctx, b)
	r.post = b
}

// gatherLate is gather for a panic that a step of the start ran into.
func (r *run) gatherLate(ctx context.Context) {
	if r.post != nil || r.conn == nil || r.dir == nil || r.deaf {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if h, err := r.conn.Refresh(ctx); err == nil && h.State == ctlproto.CTL_STATE_PANICKED {
		r.gather(ctx, "the stack's kernel panicked")
	}
}

// keepBundle writes the bundle, when all else is undone: a slow disk holds up
// nothing. What became of it is told with the panic.
func (r *run) keepBundle(err error) {
	var p *PanicError
	if r.post == nil || !errors.As(err, &p) {
		return
	}
	path, kerr := r.post.Keep()
	p.Bundle = path
	if kerr != nil {
		p.NoBundle = cli.OneLine(kerr.Error())
	}
}

// writePlan leaves the plan in the run directory, for bundles.
func (r *run) writePlan() error {
	shown := *r.plan
	shown.Command = bundle.Words(shown.Command)
	shown.Sysctls = slices.Clone(shown.Sysctls)
	for i := range shown.Sysctls {
		shown.Sysctls[i].Value = bundle.Setting(shown.Sysctls[i].Name, shown.Sysctls[i].Value)
	}
	return r.dir.WriteJSON(instance.PlanFile, shown)
}
