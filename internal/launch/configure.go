// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"

	"github.com/lklrun/lklrun/internal/stacknet"
)

// configure brings the stack to what the plan says, through the control
// connection.
func (r *run) configure(ctx context.Context) error {
	// Before the links come up: net.core.default_qdisc and the net.*.conf.default
	// settings count when a device is activated.
	if len(r.plan.Sysctls) > 0 {
		if err := stacknet.MountFilesystems(ctx, r.conn); err != nil {
			return err
		}
	}
	for _, s := range r.plan.Sysctls {
		if err := stacknet.SetSysctl(ctx, r.conn, s.Name, s.Value); err != nil {
			return err
		}
	}
	cfg := stacknet.Config{}
	for i := range r.plan.Links {
		l := &r.plan.Links[i]
		link := stacknet.Link{
			Name: l.Name, MTU: l.MTU, Addrs: l.Addrs, GW4: l.GW4, GW6: l.GW6,
			Table: l.Table, Endpoint: l.Endpoint,
		}
		if !l.MAC.IsZero() {
			link.MAC = l.MAC[:]
		}
		cfg.Links = append(cfg.Links, link)
	}
	if r.plan.Stack.MPTCP {
		cfg.MPTCP = &stacknet.MPTCPLimits{Subflows: r.plan.MPTCPLimit(), AddAddrAccepted: r.plan.MPTCPLimit()}
	}
	return stacknet.Configure(ctx, r.conn, cfg)
}
