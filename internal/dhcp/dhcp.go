// SPDX-License-Identifier: Apache-2.0

// Package dhcp gets addresses for interfaces of a stack from the network's
// servers and keeps them: DHCPv4 (RFC 2131), DHCPv6 (RFC 8415), and what router
// advertisements say, which the stack's kernel itself heeds (RFC 4862).
//
//	Client ─┬─► client4, client6: one for each protocol of an interface, each a
//	        │   state machine in a goroutine of its own, on sockets of the stack
//	        └─► stacknet.Monitor: carrier, router advertisements, IPv6 addresses
//
// A client sends and receives by calls made in the stack, which wait there; while
// nothing is due it has no socket. What a server says is looked at before it is
// heeded (lease4.go, lease6.go): whatever comes, the stack gets a sane address or
// none.
package dhcp

import (
	"net"
	"net/netip"
	"time"
)

// Link is an interface of the stack that shall get its addresses from the network.
type Link struct {
	Name    string // in the stack: eth0
	IfIndex int
	MAC     net.HardwareAddr
	MTU     int // at the start; a server cannot raise it
	Metric  int // of its routes in main

	V4, V6, SLAAC bool
	IPv6          bool // it has or shall have IPv6 of whatever kind, so that its MTU is 1280 or more
}

// Route is a route that came with a lease.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw,omitzero"` // none: on the link
}

// Lease is what a server gave.
type Lease struct {
	Addr    netip.Prefix `json:"addr,omitzero"` // none: of a stateless server
	Server  netip.Addr   `json:"server,omitzero"`
	Routes  []Route      `json:"routes,omitempty"`
	DNS     []netip.Addr `json:"dns,omitempty"`
	Domains []string     `json:"domains,omitempty"`
	MTU     int          `json:"mtu,omitempty"`
	From    time.Time    `json:"from,omitzero"`
	Renew   time.Time    `json:"renew,omitzero"` // T1; none: never
	Rebind  time.Time    `json:"rebind,omitzero"`
	Expires time.Time    `json:"expires,omitzero"`

	preferred time.Duration // of an IPv6 address
	t1, t2    time.Duration // from From
	valid     time.Duration // stacknet.Forever: no end

	serverMAC net.HardwareAddr // who sent it, for the release
	serverID  []byte           // DHCPv6: its DUID
}

// Protocols of a Status.
const (
	ProtoV4   = "dhcp"
	ProtoV6   = "dhcp6"
	ProtoInfo = "dhcp6-info" // DHCPv6 for all but an address, as the router says
	ProtoRA   = "slaac"
)

// States of a client, as RFC 2131, figure 5, names them, in lower case.
const (
	StateDown       = "no carrier"
	StateSelecting  = "selecting"
	StateRequesting = "requesting"
	StateRebooting  = "rebooting"
	StateBound      = "bound"
	StateRenewing   = "renewing"
	StateRebinding  = "rebinding"
	StateReleased   = "released"
	StateWaiting    = "waiting" // for a router, or before it tries again
)

// Status is what one client of one interface is at.
type Status struct {
	Link  string `json:"link"`
	Proto string `json:"proto"`
	State string `json:"state"`
	Lease *Lease `json:"lease,omitempty"`
}

// usable says whether an address may stand for a host that can be spoken to.
func usable(a netip.Addr) bool {
	if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6() {
		return false
	}
	if a.Is4() {
		b := a.As4()
		return b[0] != 0 && b[0] < 240 // RFC 1122, 3.2.1.3; RFC 1112, 4
	}
	return true
}
