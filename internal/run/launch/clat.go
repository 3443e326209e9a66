// SPDX-License-Identifier: Apache-2.0

//go:build !device

package launch

import (
	"context"
	"fmt"
	"slices"

	driver "github.com/lklrun/lklrun/internal/link/clat"
	"github.com/lklrun/lklrun/internal/run/clat"
)

// clats is what the clats of a run share.
type clats = clat.Forwarding

// clatService returns the service of a clat.
func clatService(v *links, l *liveLink) service {
	if l.host.CLAT == nil {
		return nil
	}
	part, _ := l.TypePlan.(driver.Part)
	return clat.New(clat.Options{
		Conn: v.conn, Name: l.Name, Plan: part, Metric: l.Metric(), Translate: l.host.CLAT, Forwarding: &v.clats,
		Uplinks: func() []clat.Uplink { return v.uplinks(part.Over) }, Log: v.log, Tell: v.env.Note,
	})
}

// uplinks returns the interfaces that a clat can be over: the given one, or all with a
// network of their own.
func (v *links) uplinks(only string) (all []clat.Uplink) {
	for _, l := range v.all() {
		if l.host.CLAT != nil || only != "" && l.Name != only {
			continue
		}
		u := clat.Uplink{Name: l.StackDevice(), Table: l.Table, Shared: len(l.Shared) > 0, Servers: slices.Clone(l.DNS)}
		if c := v.leases.Client(l.Link); c != nil {
			servers, _ := c.Resolver()
			u.Servers = append(u.Servers, servers...)
		}
		if len(u.Servers) == 0 {
			u.Servers = v.files.nameServers()
		}
		all = append(all, u)
	}
	return all
}

// awaitCLATs waits until IPv4 works through each clat. Without it, the program can still use
// IPv6.
func (v *links) awaitCLATs(ctx context.Context) error {
	any := false
	for _, l := range v.all() {
		for _, s := range l.services {
			c, ok := s.(*clat.Service)
			if !ok {
				continue
			}
			any = true
			err := c.Await(ctx)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				v.tell(fmt.Sprintf("%s: %v; IPv4 does not work until there is one", l.Name, err))
			}
		}
	}
	if !any {
		return nil
	}
	return v.paths.Sync(ctx) // let the first connection use all paths
}
