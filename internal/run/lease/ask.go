// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/dhcp"
)

// Ask answers rpc.Lease.
func (k *Leases) Ask(ctx context.Context, args rpc.LeaseArgs, _ *os.File) ([]dhcp.Status, error) {
	all := k.list()
	if args.Do == rpc.LeaseShow {
		statuses := []dhcp.Status{}
		for _, s := range all {
			statuses = append(statuses, s.client.Statuses()...)
		}
		return statuses, nil
	}
	i := slices.IndexFunc(all, func(s *Lease) bool { return s.l.Name == args.Link || s.device == args.Link })
	if i < 0 {
		return nil, rpc.Usagef("%s: %s", args.Link, noLease(all))
	}
	c := all[i].client
	ctx, cancel := context.WithTimeout(ctx, plan.LeaseLimit)
	defer cancel()
	switch args.Do {
	case rpc.LeaseRenew:
		if err := c.RenewNow(ctx); err != nil {
			return nil, fmt.Errorf("%s: no server answered within %v", args.Link, plan.LeaseLimit)
		}
	case rpc.LeaseRelease:
		if err := c.ReleaseNow(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", args.Link, err)
		}
	default:
		return nil, rpc.Usagef("%q; expected renew or release", args.Do)
	}
	return c.Statuses(), nil
}

// noLease explains that an interface has no lease, and lists the interfaces
// that have one.
func noLease(all []*Lease) string {
	if len(all) == 0 {
		return "no interface of this run gets its addresses from the network (--if ...,dhcp)"
	}
	var names []string
	for _, s := range all {
		names = append(names, s.l.Name)
	}
	return "no interface that gets its addresses from the network; there are: " + strings.Join(names, ", ")
}
