// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/lklrun/lklrun/internal/stack/paths"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// InStack returns the configuration of the link inside the stack.
func (l *Link) InStack() stacknet.Link {
	to := stacknet.Link{
		Name: l.Name, MTU: l.MTU, Addrs: l.Addrs, GW4: l.GW4, GW6: l.GW6, Direct: l.RawIP, Reach: l.Reach,
		Metric: l.Metric(),
		Group:  l.Group, Qdisc: l.Qdisc, VLAN: l.VLAN,
	}
	for _, n := range l.Neigh {
		to.Neigh = append(to.Neigh, stacknet.Neighbour{IP: n.IP, MAC: n.MAC[:]})
	}
	for _, r := range l.Routes {
		to.Routes = append(to.Routes, stacknet.StaticRoute{To: r.To, Via: r.Via})
	}
	if !l.MAC.IsZero() {
		to.MAC = l.MAC[:]
	}
	return to
}

// StackDevice returns the name of the stack's device that has the link's addresses.
func (l *Link) StackDevice() string {
	top := l.InStack()
	return top.Top()
}

// Path returns the path that the link needs.
func (l *Link) Path() paths.Want {
	w := paths.Want{Name: l.StackDevice(), Table: l.Table}
	if !l.Endpoint {
		return w
	}
	// Peers connect to announced addresses (signal).
	w.Endpoint = stacknet.EndpointSubflow
	if l.Signal {
		w.Endpoint = stacknet.EndpointSignal
	}
	if l.Backup {
		w.Endpoint |= stacknet.EndpointBackup
	}
	if l.Fullmesh {
		w.Endpoint |= stacknet.EndpointFullmesh
	}
	return w
}
