// SPDX-License-Identifier: Apache-2.0

// Package guard lets a stack use an address that is the host's own as well.
//
// The two kernels part its ports among themselves: the stack has a range, which
// is reserved on the host, and the ports of its servers (Ports). Three things keep
// them apart:
//
//	Reserve  the host's kernel hands out none of the range (ip_local_reserved_ports)
//	Filter   the stack's packet sockets hear nothing but what is the stack's
//	Open     rules in the host's firewall drop just that before the host's own
//	         IP and TCP see it, so that they do not answer it with resets
//
// Packet sockets bound to ETH_P_ALL hear a frame before the first of those rules
// (__netif_receive_skb_core(), net/core/dev.c: ptype_all comes before nf_ingress);
// those bound to one protocol only after it.
//
// Every change to the host is one that Remove and Release can take back knowing
// nothing but what was written down before (Rules, Ports): after a crash another
// process does.
package guard

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Ports are those that the stack has of a shared address, of TCP and of UDP.
type Ports struct {
	First  uint16   `json:"first"` // of the range for connections
	Last   uint16   `json:"last"`
	Listen []uint16 `json:"listen,omitempty"` // servers', beside the range
}

// String writes them as the kernel does its lists of ports.
func (p Ports) String() string {
	s := fmt.Sprintf("%d-%d", p.First, p.Last)
	for _, l := range p.outside() {
		s += "," + strconv.Itoa(int(l))
	}
	return s
}

// outside returns the servers' ports that do not lie in the range.
func (p Ports) outside() []uint16 {
	var all []uint16
	for _, l := range p.Listen {
		if l < p.First || l > p.Last {
			all = append(all, l)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Link is a device of the host whose addresses the stack shares.
type Link struct {
	Device string       `json:"device"`
	Addrs  []netip.Addr `json:"addrs"`
}

// String names device and addresses.
func (l Link) String() string {
	var all []string
	for _, a := range l.Addrs {
		all = append(all, a.String())
	}
	return l.Device + " " + strings.Join(all, " ")
}
