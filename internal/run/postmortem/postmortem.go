// SPDX-License-Identifier: Apache-2.0

// Package postmortem collects a bundle for diagnosis after a panic of a stack's
// kernel. A dead kernel cannot report its sockets and counters, so a Sampler
// samples them at intervals while it runs.
package postmortem

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

const (
	// every is the interval between two samples. A sample costs lklhost 3
	// ms of CPU time with 2 sockets and 10 ms with 1939 sockets (schedstat
	// of proc(5) over 50 samples). That is at most 0.03 % of a core.
	every = 30 * time.Second
	limit = 5 * time.Second

	// share makes expensive samples less frequent. The pause after a sample
	// lasts share times as long as the sample took, but at most the time
	// most. With 10,500 connections on one busy CPU, a sample used 0.12 s
	// of that CPU. Half of this time was spent in the stack, which cannot
	// do other work meanwhile.
	share = 200
	most  = 5 * time.Minute
)

// first are the delays before the first samples. They are short, because many
// panics occur early.
var first = []time.Duration{time.Second, 4 * time.Second, 10 * time.Second}

// Sampler samples a stack at intervals.
type Sampler struct {
	conn   *stackconn.Conn
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	last *crash.Look
}

// NewSampler returns a Sampler for the stack behind conn.
func NewSampler(conn *stackconn.Conn, log *slog.Logger) *Sampler {
	return &Sampler{conn: conn, log: log}
}

// Start starts the sampling.
func (s *Sampler) Start(ctx context.Context) error {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		var took time.Duration
		for n := 0; ; n++ {
			select {
			case <-time.After(next(n, took)):
				began := time.Now()
				s.take(ctx)
				took = time.Since(began)
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// next returns the delay before sample n, counted from 0. took is the duration
// of the previous sample.
func next(n int, took time.Duration) time.Duration {
	after := every
	if n < len(first) {
		after = first[n]
	}
	return max(after, min(share*took, most))
}

// Stop ends the sampling.
func (s *Sampler) Stop() {
	s.cancel()
	<-s.done
}

// take takes one sample. If the stack does not answer, the previous sample
// remains.
func (s *Sampler) take(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	look, err := crash.Now(ctx, s.conn)
	if err != nil {
		s.log.Debug("reading the stack's sockets", "error", err)
		return
	}
	s.mu.Lock()
	s.last = look
	s.mu.Unlock()
	s.log.Debug("saved the stack's state for a crash report", "sockets", len(look.Sockets), "took", time.Since(look.Time).Round(time.Microsecond))
}

// Last returns the last sample, or nil if there is none. A nil Sampler has none.
func (s *Sampler) Last() *crash.Look {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Run contains the parts of a run that Gather needs.
type Run struct {
	Conn    *stackconn.Conn
	Dir     *instance.Dir
	State   instance.State
	Look    *crash.Look // last sample; nil: there is none
	Packets func(context.Context, *crash.Report)
}

// Gather builds the bundle for a panicked kernel. It must be called while
// lklhost still answers and the run directory exists.
func Gather(ctx context.Context, r Run, why string) *crash.Report {
	b := crash.New(r.Dir.Name, why, time.Now())
	b.AddKernelLog(ctx, r.Conn)
	b.AddRun(r.Dir.Path, &r.State)
	b.AddStats(ctx, r.Conn)
	if look := r.Look; look != nil {
		b.AddSnapshot(look, "at "+look.Time.Format(time.RFC3339)+", the last snapshot before the panic")
	} else {
		b.NoteMissing("sockets.json, counters.txt", errors.New("the kernel panicked before the first snapshot"))
	}
	r.Packets(ctx, b)
	return b
}
