// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// elsewhere returns the other interface of the stack that has an address; "":
// none.
func (c *client) elsewhere(ctx context.Context, a netip.Addr) (string, error) {
	all, err := stacknet.Addresses(ctx, c.conn)
	if err != nil {
		return "", err
	}
	for _, x := range all {
		if x.Prefix.Addr() == a && x.IfIndex != c.link.IfIndex {
			return fmt.Sprintf("is already used by another interface of the stack (index %d)", x.IfIndex), nil
		}
	}
	return "", nil
}

// apply changes the stack from an old lease, nil if there is none, to a new
// one.
func (c *client4) apply(ctx context.Context, old, l *Lease) error {
	err := stacknet.SetLeased(ctx, c.conn, stacknet.Leased{
		IfIndex: c.link.IfIndex, Prefix: l.Addr, Preferred: l.left(l.valid), Valid: l.left(l.valid),
	})
	if err != nil {
		return err
	}
	if err := c.applyMTU(ctx, old, l); err != nil {
		return err
	}
	// Routes on the link come first, including those to the gateways of
	// other routes.
	routes := slices.Clone(l.Routes)
	sort.SliceStable(routes, func(i, j int) bool { return routes[i].Dst.Bits() > routes[j].Dst.Bits() })
	for _, r := range routes {
		if err := stacknet.SetLeasedRoute(ctx, c.conn, c.route(l, r)); err != nil {
			return err
		}
	}
	if old == nil {
		return nil
	}
	var errs []error
	for _, r := range old.Routes {
		if !slices.Contains(l.Routes, r) || old.Addr != l.Addr {
			if was := c.route(old, r); was != c.route(l, r) {
				errs = append(errs, stacknet.RemoveLeasedRoute(ctx, c.conn, was))
			}
		}
	}
	if old.Addr != l.Addr {
		errs = append(errs, stacknet.RemoveAddress(ctx, c.conn, c.link.IfIndex, old.Addr))
	}
	return errors.Join(errs...)
}

// applyMTU sets the MTU of the lease, or restores the interface's own.
func (c *client4) applyMTU(ctx context.Context, old, l *Lease) error {
	had, mtu := 0, l.MTU
	if old != nil {
		had = old.MTU
	}
	if had == mtu {
		return nil
	}
	if mtu == 0 {
		mtu = c.link.MTU
	}
	return stacknet.SetMTU(ctx, c.conn, c.link.IfIndex, mtu)
}

func (c *client4) route(l *Lease, r Route) stacknet.LeasedRoute {
	return stacknet.LeasedRoute{
		IfIndex: c.link.IfIndex, Dst: r.Dst, GW: r.GW, Src: l.Addr.Addr(), Metric: c.link.Metric,
		OnLink: r.GW.IsValid() && !l.Addr.Contains(r.GW),
	}
}

// unapply removes a lease from the stack.
func (c *client4) unapply(ctx context.Context, l *Lease) error {
	var errs []error
	for _, r := range l.Routes {
		errs = append(errs, stacknet.RemoveLeasedRoute(ctx, c.conn, c.route(l, r)))
	}
	errs = append(errs, stacknet.RemoveAddress(ctx, c.conn, c.link.IfIndex, l.Addr))
	if l.MTU != 0 {
		errs = append(errs, stacknet.SetMTU(ctx, c.conn, c.link.IfIndex, c.link.MTU))
	}
	return errors.Join(errs...)
}
