// SPDX-License-Identifier: Apache-2.0

// Package stacknet configures the network of a stack: links, addresses, routes, rules,
// sysctls and MPTCP endpoints, all through internal/stack/stackconn.
//
// Config is plain data; Configure applies it.
package stacknet

import (
	"fmt"
	"net"
	"net/netip"
)

// Config is the wanted state of a stack's network.
type Config struct {
	// Sysctls are set in order, before everything else: net.core.default_qdisc and
	// the net.*.conf.default settings apply when a link comes up.
	Sysctls []Sysctl
	// Without is called for each optional sysctl that the stack does not accept.
	Without func(error)
	Links   []Link
	MPTCP   *MPTCPLimits // nil: the kernel's defaults
}

// Link is one interface of the stack.
type Link struct {
	Name  string           // eth0, ...
	MAC   net.HardwareAddr // nil: unchanged
	MTU   int              // 0: unchanged
	Addrs []netip.Prefix

	GW4, GW6 netip.Addr // zero: no default route
	Metric   int        // of the link's routes in the main table
	Routes   []StaticRoute

	Group int    // of devices; 0: the default group
	Qdisc string // kind of the root queueing discipline; empty: the stack's default
	Neigh []Neighbour

	// VLAN is the ID of a VLAN device NAME.VLAN on top of this one; 0: none. The VLAN
	// device gets the addresses, routes and endpoints instead.
	VLAN int

	// Direct is a link without link layer, on which everything is reachable without a
	// gateway. If there is no gateway, it gets routes to Reach, or default routes if Reach is
	// empty, for the families of its addresses.
	Direct bool
	Reach  []netip.Prefix
}

// Top returns the name of the device that has the link's addresses.
func (l *Link) Top() string {
	if l.VLAN == 0 {
		return l.Name
	}
	return fmt.Sprintf("%s.%d", l.Name, l.VLAN)
}

// StaticRoute leads to a network through a gateway on the link.
type StaticRoute struct {
	To  netip.Prefix
	Via netip.Addr
}

// Neighbour is an address with a static link address.
type Neighbour struct {
	IP  netip.Addr
	MAC net.HardwareAddr
}

// Sysctl is one setting under /proc/sys; Key is written with dots or slashes.
type Sysctl struct {
	Key, Value string
	Optional   bool // the stack may lack it or refuse the value
	Quiet      bool // with Optional: nobody needs to know
}

// MPTCPLimits are the limits of the in-kernel path manager, as in `ip mptcp limits`.
type MPTCPLimits struct {
	Subflows        int
	AddAddrAccepted int
}

// MaxMPTCP returns the limits for a run: the kernel's own maximum for the subflows of a
// connection and for the addresses that it accepts from its peer.
func MaxMPTCP() *MPTCPLimits { return &MPTCPLimits{Subflows: 8, AddAddrAccepted: 8} }
