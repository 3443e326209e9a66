// SPDX-License-Identifier: Apache-2.0

// Package dhcp gets and maintains addresses for interfaces of a stack from the network's
// servers. It supports DHCPv4 (RFC 2131), DHCPv6 (RFC 8415) and router advertisements,
// which the stack's kernel itself processes (RFC 4862).
//
//	Client ─┬─► client4, client6: one for each protocol of an interface, each a
//	        │   state machine in a goroutine of its own, on sockets of the stack
//	        └─► stacknet.Monitor: carrier, router advertisements, IPv6 addresses
//
// A client sends and receives by blocking calls made in the stack. While nothing is due,
// it has no socket. A client validates the server's messages before it uses them
// (lease4.go, lease6.go): whatever arrives, the stack gets a valid address or none.
package dhcp

import (
	"net"
	"net/netip"
	"time"
)

// Link is an interface of the stack that gets its addresses from the network.
type Link struct {
	Name    string // in the stack: eth0
	IfIndex int
	MAC     net.HardwareAddr
	MTU     int // initial value; a server cannot raise it
	Metric  int // metric of its routes in the main table

	V4, V6, SLAAC bool
	IPv6          bool // it has or will get any IPv6 address, so its MTU is at least 1280
}

// Route is a route from a lease.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw,omitzero"` // none: on the link
}

// Lease is a lease or other information from a server.
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
	t1, t2    time.Duration // counted from From
	valid     time.Duration // stacknet.Forever: no end

	serverMAC net.HardwareAddr // the sender, for the release
	serverID  []byte           // DHCPv6: the server's DUID
}

// Protocols of a Status.
const (
	ProtoV4   = "dhcp"
	ProtoV6   = "dhcp6"
	ProtoInfo = "dhcp6-info" // DHCPv6 without an address, as the router announces
	ProtoRA   = "slaac"
)

// States of a client, named as in RFC 2131, figure 5, in lower case.
const (
	StateDown       = "no carrier"
	StateSelecting  = "selecting"
	StateRequesting = "requesting"
	StateRebooting  = "rebooting"
	StateBound      = "bound"
	StateRenewing   = "renewing"
	StateRebinding  = "rebinding"
	StateReleased   = "released"
	StateWaiting    = "waiting" // for a router, or before the next attempt
)

// Status is the status of one client of one interface.
type Status struct {
	Link  string `json:"link"`
	Proto string `json:"proto"`
	State string `json:"state"`
	Lease *Lease `json:"lease,omitempty"`
}

// usable reports whether an address can be that of a single reachable host.
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
