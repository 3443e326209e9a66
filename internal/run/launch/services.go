// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"slices"
	"sync"

	"github.com/lklrun/lklrun/internal/diag/ask"
	"github.com/lklrun/lklrun/internal/run/share"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// service is a task that lklrun performs for a running stack. It starts after
// the stack is configured, before the target is released, and stops after the
// target has ended. It talks to the stack through run.conn.
//
// Start may block on tasks that must be complete before the target runs; its
// ctx ends with the start. Stop ends all background work. It is called once if
// Start returned nil, even if the connection has ended. Stop returns when all
// that work has ended, and has its own timeout.
type service interface {
	Start(ctx context.Context) error
	Stop()
}

// runServices create the services of a run, in start order. A result of nil
// means that this run does not need the service.
var runServices = []func(r *run) service{
	func(r *run) service { return r.links.paths }, // the first, because it follows the others' changes
	dumps,
	samplers,
	histories,
	func(r *run) service { return guardService{&r.sharing, r.conn, &r.asked} },
}

// guardService guards the shared addresses while the stack runs.
type guardService struct {
	*share.Sharing
	conn  *stackconn.Conn
	asked *questions
}

// Start applies the present state.
func (g guardService) Start(ctx context.Context) error {
	ask.Handle(&g.asked.Mux, ask.Guard, g.Ask)
	return g.Serve(ctx, g.conn)
}

// serve starts the services of the run and of its links.
func (r *run) serve(ctx context.Context) error {
	for _, made := range runServices {
		s := made(r)
		if s == nil {
			continue
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		r.services.started(s)
	}
	served := false
	for _, l := range r.links.all() {
		if err := r.links.serve(ctx, l); err != nil {
			return err
		}
		served = served || len(l.services) > 0
	}
	if served { // so that the first connection can use all paths
		return r.links.paths.Sync(ctx)
	}
	return nil
}

// services are the running services of a run, without those of its links.
type services struct {
	mu  sync.Mutex
	all []service
}

// started records a service that runs.
func (v *services) started(s service) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, s)
}

// stop stops the services in reverse order.
func (v *services) stop() {
	v.mu.Lock()
	all := v.all
	v.all = nil
	v.mu.Unlock()
	for _, s := range slices.Backward(all) {
		s.Stop()
	}
}

// stopServing stops all services. From then on no link is added or deleted.
func (r *run) stopServing() {
	r.links.changing.Lock()
	defer r.links.changing.Unlock()
	r.links.over = true
	for _, l := range slices.Backward(r.links.all()) {
		l.stopServices()
	}
	r.services.stop()
	if r.host != nil && !r.host.Unresponsive {
		r.recorder.Farewell(r.conn)
	}
}
