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
	func(r *run) service { return r.paths }, // the first, because it follows the others' changes
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

// linkServices create the services of a configured link. A result of nil means
// that this link does not need the service.
var linkServices = []func(r *run, l *liveLink) service{leaseService, watches}

// live is the part of a run that can change between the stack's configuration
// and its end.
type live struct {
	changing sync.Mutex // held while a link is added or deleted
	over     bool       // no more links are added or deleted; protected by changing

	mu       sync.Mutex
	links    []*liveLink
	services []service
}

// all returns the present links.
func (v *live) all() []*liveLink {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.links)
}

func (v *live) put(l *liveLink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.links = append(v.links, l)
}

func (v *live) drop(l *liveLink) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.links = slices.DeleteFunc(v.links, func(k *liveLink) bool { return k == l })
}

// started records a service that runs.
func (v *live) started(s service) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.services = append(v.services, s)
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
		r.live.started(s)
	}
	served := false
	for _, l := range r.live.all() {
		if err := r.serveLink(ctx, l); err != nil {
			return err
		}
		served = served || len(l.services) > 0
	}
	if served { // so that the first connection can use all paths
		return r.paths.Sync(ctx)
	}
	return nil
}

// serveLink starts the services of one link.
func (r *run) serveLink(ctx context.Context, l *liveLink) error {
	for _, made := range linkServices {
		s := made(r, l)
		if s == nil {
			continue
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		l.services = append(l.services, s)
	}
	return nil
}

// stopServices stops the services of a link in reverse order.
func (k *liveLink) stopServices() {
	for _, s := range slices.Backward(k.services) {
		s.Stop()
	}
	k.services = nil
}

// stopServing stops all services. From then on no link is added or deleted.
func (r *run) stopServing() {
	r.live.changing.Lock()
	defer r.live.changing.Unlock()
	r.live.over = true
	for _, l := range slices.Backward(r.live.all()) {
		l.stopServices()
	}
	r.live.mu.Lock()
	services := r.live.services
	r.live.services = nil
	r.live.mu.Unlock()
	for _, s := range slices.Backward(services) {
		s.Stop()
	}
	if r.host != nil && !r.host.Unresponsive {
		r.recorder.Farewell(r.conn)
	}
}
