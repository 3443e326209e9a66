// SPDX-License-Identifier: Apache-2.0

// Package stacknet configures the network of a stack: links, addresses, routes,
// rules, sysctls and MPTCP endpoints, all through internal/stackconn.
//
// Config is plain data; Configure brings the stack to it.
package stacknet

import (
	"fmt"
	"net"
	"net/netip"
)

// Config is how a stack's network shall be.
type Config struct {
	// Sysctls are set in order, before all else: net.core.default_qdisc and the
	// net.*.conf.default settings count when a link comes up.
	Sysctls []Sysctl
	// Without is told of each optional one that the stack does not take.
	Without func(error)
	Links   []Link
	MPTCP   *MPTCPLimits // nil: the kernel's own
}

// Link is one interface of the stack.
type Link struct {
	Name  string           // eth0, ...
	MAC   net.HardwareAddr // nil: leave it
	MTU   int              // 0: leave it
	Addrs []netip.Prefix

	GW4, GW6 netip.Addr // zero: no default route
	Metric   int        // of the default routes in the main table

	Group int    // of devices; 0: the default one
	Qdisc string // kind of the root queueing discipline; empty: the stack's choice
	Neigh []Neighbour

	// VLAN makes a device NAME.VLAN on top of this one, which has the addresses,
	// routes and endpoints in its place; 0: none.
	VLAN int

	// Direct is a link without link layer, on which everything is reached
	// without a gateway: the default routes of the families that it has addresses
	// of lead there when there is none.
	Direct bool
}

// Top is the name of the device that has the link's addresses.
func (l *Link) Top() string {
	if l.VLAN == 0 {
		return l.Name
	}
	return fmt.Sprintf("%s.%d", l.Name, l.VLAN)
}

// Neighbour is an address whose link address is known without asking.
type Neighbour struct {
	IP  netip.Addr
	MAC net.HardwareAddr
}

// Sysctl is one setting under /proc/sys; Key is written with dots or slashes.
type Sysctl struct {
	Key, Value string
	Optional   bool // the stack may lack it, or refuse the value
}

// MPTCPLimits are the in-kernel path manager's, as in `ip mptcp limits`.
type MPTCPLimits struct {
	Subflows        int
	AddAddrAccepted int
}
