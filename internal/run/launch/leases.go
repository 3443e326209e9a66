// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"slices"

	"github.com/lklrun/lklrun/internal/run/plan"
)

// leaseService returns the service of a link that gets addresses from its
// network.
func leaseService(v *links, l *liveLink) service {
	if !l.Leases() {
		return nil
	}
	return v.leases.Add(l.Link, stackDevice(l.Link))
}

// stackDevice returns the name of the stack's device that has the link's
// addresses.
func stackDevice(l *plan.Link) string {
	top := stackLink(l)
	return top.Top()
}

// leasesChanged updates the run's files after a lease has changed.
func (v *links) leasesChanged() { v.files.leases(v) }

// awaitLeases waits until the links have their leased addresses.
func (v *links) awaitLeases(ctx context.Context) error {
	configured := slices.ContainsFunc(v.all(), func(l *liveLink) bool { return len(l.Addrs) > 0 })
	if err := v.leases.Await(ctx, configured); err != nil {
		return err
	}
	v.leasesChanged()
	return v.paths.Sync(ctx) // let the first connection use all paths
}
