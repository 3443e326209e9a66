// SPDX-License-Identifier: Apache-2.0

// Package guard lets a stack use an address that the host has too.
//
// The two kernels divide the ports of the address. The stack has a range, which is
// reserved on the host, and the ports of its servers (Ports). Three mechanisms keep the
// two apart:
//
//	Reserve  the host's kernel assigns no port of the range (ip_local_reserved_ports)
//	Filter   the stack's packet sockets receive only the stack's packets
//	Open     rules in the host's firewall drop exactly those packets before the
//	         host's own IP and TCP see them, so that it does not answer with RSTs
//
// A packet socket bound to ETH_P_ALL receives a frame before the first of those rules
// (__netif_receive_skb_core(), net/core/dev.c: ptype_all comes before nf_ingress). A
// packet socket bound to a single protocol receives the frame after these rules.
//
// Remove and Release can undo every change to the host from the written record alone
// (Rules, Ports). After a crash, another process does this.
package guard

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Ports are the stack's TCP and UDP ports of a shared address.
type Ports struct {
	First  uint16   `json:"first"`            // first port of the range for connections
	Last   uint16   `json:"last"`             // last port of the range
	Listen []uint16 `json:"listen,omitempty"` // server ports outside the range
}

// String formats the ports like the kernel's lists of ports.
func (p Ports) String() string {
	s := fmt.Sprintf("%d-%d", p.First, p.Last)
	for _, l := range p.outside() {
		s += "," + strconv.Itoa(int(l))
	}
	return s
}

// outside returns the servers' ports outside the range.
func (p Ports) outside() []uint16 {
	var all []uint16
	for _, l := range p.Listen {
		if l < p.First || l > p.Last {
			all = append(all, l)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return slices.Compact(all)
}

// Link is a device of the host whose addresses the stack shares.
type Link struct {
	Device string       `json:"device"` // device of the host
	Addrs  []netip.Addr `json:"addrs"`  // shared addresses
}

// String names the device and its addresses.
func (l Link) String() string {
	var all []string
	for _, a := range l.Addrs {
		all = append(all, a.String())
	}
	return l.Device + " " + strings.Join(all, " ")
}
