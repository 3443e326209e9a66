// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/stack/resolver"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// names is the service that answers name queries on the stack's loopback, for a target
// without the run's resolv.conf.
type names struct {
	resolver.Resolver
	conn    *stackconn.Conn
	instead []netip.Addr // addresses if the target sees the host's resolv.conf
}

// resolvers returns the service names, if the run has name servers.
func resolvers(r *run) service {
	if r.plan.Resolv == "" {
		return nil
	}
	return &names{
		Resolver: resolver.Resolver{Options: resolver.Options{
			Conn: r.conn, Addrs: r.plan.Names.Serve, Servers: r.files.nameServers, Log: r.log,
		}},
		conn: r.conn, instead: r.plan.Names.ServeInstead,
	}
}

// Start listens on the loopback addresses that programs query.
func (n *names) Start(ctx context.Context) error {
	stats, err := n.conn.Stats(ctx)
	if err != nil {
		return err
	}
	// Without namespaces, nothing can be mounted over the host's resolv.conf.
	if slices.Contains(stats, stackconn.Stat{Name: "control.shared_netns", Value: 1}) {
		n.Addrs = n.instead
	}
	return n.Resolver.Start(ctx)
}
