// SPDX-License-Identifier: Apache-2.0

// Package stacknet configures the network of a stack: links, addresses, routes,
// rules, sysctls and MPTCP endpoints, all through internal/stackconn.
//
// Config is plain data; Configure brings the stack to it.
package stacknet

import (
	"net"
	"net/netip"
)

// Config is how a stack's network shall be.
type Config struct {
	// Sysctls are set in order, before all else: net.core.default_qdisc and the
	// net.*.conf.default settings count when a link comes up.
	Sysctls []Sysctl
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

	// Table is the routing table of the link's own, which the rules for its
	// addresses lead to; 0: none.
	Table int

	// Endpoint makes each address an MPTCP endpoint with flag subflow.
	Endpoint bool
}

// Sysctl is one setting under /proc/sys; Key is written with dots or slashes.
type Sysctl struct {
	Key, Value string
}

// MPTCPLimits are the in-kernel path manager's, as in `ip mptcp limits`.
type MPTCPLimits struct {
	Subflows        int
	AddAddrAccepted int
}
