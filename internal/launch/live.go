// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"slices"
	"sync"
)

// service is something that lklrun does for a stack while it runs. It is there
// from the configuration of the stack, before the target is released, until the
// target has ended. It talks to the stack through run.conn.
//
// Start may take its time for what the target must find done; it ends with ctx,
// which is the start's. Whatever goes on afterwards ends with Stop, which is
// called once if Start returned nil, also when the connection is over; it does
// not return before all that has ended, and it has a limit of its own.
type service interface {
	Start(ctx context.Context) error
	Stop()
}

// runServices make the services of a run, in the order in which they start; nil:
// this run needs none of it.
var runServices = []func(r *run) service{
	func(r *run) service { return r.paths }, // the first: it follows what the others do
	dumps,
	lookers,
	histories,
	func(r *run) service { return &guardService{r} },
}

// linkServices make the services of one link, when it has been configured; nil:
// this link needs none of it.
var linkServices = []func(r *run, l *liveLink) service{leases, watches}

// live is what may change of a run between the configuration of its stack and
// its end.
type live struct {
	changing sync.Mutex // held by whoever adds or deletes a link
	over     bool       // nobody does any more; under changing

	mu       sync.Mutex
	links    []*liveLink
	services []service
}

// all returns the links as they are now.
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

// serve starts the services of the run and of the links it has.
func (r *run) serve(ctx context.Context) error {
	for _, made := range runServices {
		s := made(r)
		if s == nil {
			continue
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		r.live.mu.Lock()
		r.live.services = append(r.live.services, s)
		r.live.mu.Unlock()
	}
	served := false
	for _, l := range r.live.all() {
		if err := r.serveLink(ctx, l); err != nil {
			return err
		}
		served = served || len(l.services) > 0
	}
	if served { // the first connection has all paths
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

// stopServices ends the services of a link, the last one first.
func (k *liveLink) stopServices() {
	for _, s := range slices.Backward(k.services) {
		s.Stop()
	}
	k.services = nil
}

// stopServing ends all services: nobody adds or deletes a link any more.
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
	r.farewell()
}
