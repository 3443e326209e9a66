// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/run/sharedaddr"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// service is a task that lklrun performs for a running stack. It starts after
// the stack is configured and before the target is released. It stops after the
// target has ended. It communicates with the stack over run.conn.
//
// Start may block on tasks that must be complete before the target runs. Its
// ctx ends with the start. If Start returned nil, Stop is called once, even if
// the connection has ended. Stop ends all background work, waits until it has
// ended, and uses its own timeout.
type service interface {
	Start(ctx context.Context) error
	Stop()
}

// runServices create the services of a run, which start beside each other. They return
// nil if this run does not need the service.
var runServices = []func(r *run) service{
	func(r *run) service { return r.files },
	func(r *run) service { return r.links.paths }, // stops last, because it reacts to changes that the others make
	outputs,
	dumps,
	explainers,
	samplers,
	histories,
	resolvers,
	relays,
	func(r *run) service { return guardService{&r.sharing, r.conn, &r.asked} },
}

// guardService guards the shared addresses while the stack runs.
type guardService struct {
	*sharedaddr.Sharing
	conn  *stackconn.Conn
	asked *questions
}

// Start guards the addresses that are shared now.
func (g guardService) Start(ctx context.Context) error {
	rpc.Handle(&g.asked.Mux, rpc.Guard, g.Ask)
	return g.Serve(ctx, g.conn)
}

// serve starts the services of the run and of its links.
func (r *run) serve(ctx context.Context) error {
	all, errs := make([]service, len(runServices)), make([]error, len(runServices))
	var starting sync.WaitGroup
	for i, made := range runServices {
		if all[i] = made(r); all[i] != nil {
			starting.Go(func() { errs[i] = all[i].Start(ctx) })
		}
	}
	starting.Wait()
	for i, s := range all {
		if s != nil && errs[i] == nil {
			r.services.started(s)
		}
	}
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	served := false
	for _, l := range r.links.all() {
		if err := r.links.serve(ctx, l); err != nil {
			return err
		}
		// A wire has its carrier only now.
		served = served || len(l.services) > 0 || l.host.Peers != nil
	}
	if served { // let the first connection use all paths
		return r.links.paths.Sync(ctx)
	}
	return nil
}

// services are the running services of a run, without those of its links.
type services struct {
	mu  sync.Mutex
	all []service
}

// started records a service that is running.
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

// stopServing stops all services. After that, links can no longer be added or
// deleted.
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
