// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/diag/explain"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// explainEvery is the time between two readings during a whole run.
const explainEvery = 200 * time.Millisecond

// explainer records what limits the connections of a run, and reports it at the end.
type explainer struct {
	conn  *stackconn.Conn
	state instance.State
	log   *slog.Logger
	asked *questions
	print func(*explain.Report)

	watcher *explain.Watcher
	cancel  context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	judge explain.Judge
}

func explainers(r *run) service {
	if !r.plan.Explain {
		rpc.Handle(&r.asked.Mux, explain.Recorded, unrecorded)
		return nil
	}
	return &explainer{conn: r.conn, state: r.files.now(), log: r.log, asked: &r.asked, print: r.opts.Explain}
}

// Start takes the first reading.
func (e *explainer) Start(ctx context.Context) error {
	background, cancel := context.WithCancel(context.Background())
	info := &instance.Info{State: e.state}
	w, err := explain.NewWatcher(background, e.conn, info)
	if err != nil {
		cancel()
		return err
	}
	e.watcher, e.cancel, e.done = w, cancel, make(chan struct{})
	if err := e.read(ctx); err != nil {
		cancel()
		return err
	}
	rpc.Handle(&e.asked.Mux, explain.Recorded, e.answer)
	go e.run(background)
	return nil
}

func (e *explainer) run(ctx context.Context) {
	defer close(e.done)
	tick := time.NewTicker(explainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := e.read(ctx); err != nil {
			if ctx.Err() == nil {
				e.log.Debug("observing the connections", "error", err)
			}
			if e.conn.Err() != nil {
				return
			}
		}
	}
}

// read takes a reading.
func (e *explainer) read(ctx context.Context) error {
	r, err := e.watcher.Read(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.judge.Add(r)
	return nil
}

// report explains the connections so far.
func (e *explainer) report() *explain.Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.judge.Report()
	r.Instance = e.state.Name
	return r
}

// answer answers explain.Recorded.
func (e *explainer) answer(context.Context, struct{}, *os.File) (explain.Report, error) {
	return e.report().Shortened(), nil
}

// unrecorded answers explain.Recorded for a run without --explain.
func unrecorded(context.Context, struct{}, *os.File) (explain.Report, error) {
	return explain.Report{}, rpc.Usagef("nothing was recorded from the start; start the run with lklrun --explain, or observe it now with --for")
}

// Stop prints the report. The connections have ended by now, so there is no last reading.
func (e *explainer) Stop() {
	e.cancel()
	<-e.done
	if err := e.watcher.Close(); err != nil && !errors.Is(err, stackconn.ErrClosed) {
		e.log.Debug("observing the connections", "error", err)
	}
	if e.print != nil {
		e.print(e.report())
	}
}
