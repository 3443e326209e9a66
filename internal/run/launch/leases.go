// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"slices"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/dhcp"
)

// leaseService returns the service of a link that gets addresses from its
// network.
func leaseService(r *run, l *liveLink) service {
	if !l.Leases() {
		return nil
	}
	return r.leases.Add(l.Link, stackDevice(l.Link))
}

// stackDevice returns the name of the device in the stack that has the link's
// addresses.
func stackDevice(l *plan.Link) string {
	top := stackLink(l)
	return top.Top()
}

// leasesChanged updates the run's files with the leases.
func (r *run) leasesChanged() {
	r.writing.Lock()
	defer r.writing.Unlock()
	var names []plan.Names
	given := map[string][]dhcp.Status{}
	for _, l := range r.live.all() {
		n := plan.Names{Link: l.Link}
		if c := r.leases.Client(l.Link); c != nil {
			n.Servers, n.Search = c.Resolver()
			given[l.Name] = c.Statuses()
		}
		names = append(names, n)
	}
	if r.plan.Resolv != "" {
		if err := r.dir.Rewrite(instance.ResolvFile, []byte(r.plan.ResolvConf(names))); err != nil {
			r.log.Debug("writing the command's name servers", "error", err)
		}
	}
	err := r.changeState(func(s *instance.State) {
		for n := range s.Interfaces {
			s.Interfaces[n].Leases = shownLeases(given[s.Interfaces[n].Name])
		}
	})
	if err != nil {
		r.log.Debug("writing the leases", "error", err)
	}
}

// shownLeases converts leases to their form in state.json.
func shownLeases(all []dhcp.Status) []instance.Lease {
	var shown []instance.Lease
	for _, x := range all {
		k := instance.Lease{Proto: x.Proto, State: x.State}
		if x.Lease != nil && x.Lease.Addr.IsValid() {
			k.Addr, k.Expires = x.Lease.Addr.String(), x.Lease.Expires
		}
		shown = append(shown, k)
	}
	return shown
}

// awaitLeases waits until the links have their addresses.
func (r *run) awaitLeases(ctx context.Context) error {
	configured := slices.ContainsFunc(r.live.all(), func(l *liveLink) bool { return len(l.Addrs) > 0 })
	if err := r.leases.Await(ctx, configured); err != nil {
		return err
	}
	r.leasesChanged()
	return r.paths.Sync(ctx) // so that the first connection can use all paths
}
