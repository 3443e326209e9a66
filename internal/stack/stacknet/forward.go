// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// This file makes the settings with which the stack forwards packets of chosen addresses
// only.

// Attributes and action of rules, include/uapi/linux/fib_rules.h.
const (
	fraDst         = 1
	fraIifname     = 3
	frActBlackhole = 6
)

// ForwardRule is a rule for the IPv6 packets that arrive at an interface and are not for
// the stack itself: `[from Src] [to Dst] iif In lookup Table`.
type ForwardRule struct {
	Priority int
	In       string       // the interface, which need not exist yet
	Src, Dst netip.Prefix // zero: any
	Table    int          // 0: drop the packet
}

// AddForwardRule adds a rule, unless it exists.
func AddForwardRule(r ForwardRule) Request {
	q := r.request(unix.RTM_NEWRULE, netlink.Create|netlink.Excl)
	q.never = syscall.EEXIST
	return q
}

// DelForwardRule removes a rule, if it exists.
func DelForwardRule(r ForwardRule) Request {
	q := r.request(unix.RTM_DELRULE, 0)
	q.never = syscall.ENOENT
	return q
}

func (r ForwardRule) request(typ netlink.HeaderType, flags netlink.HeaderFlags) Request {
	head := make([]byte, sizeRuleHdr)
	head[0], head[7] = unix.AF_INET6, frActTable
	if r.Table == 0 {
		head[7] = frActBlackhole
	}
	if r.Dst.IsValid() {
		head[1] = uint8(r.Dst.Bits())
	}
	if r.Src.IsValid() {
		head[2] = uint8(r.Src.Bits())
	}
	return request(typ, flags, head, func(ae *netlink.AttributeEncoder) {
		if r.Dst.IsValid() {
			ae.Bytes(fraDst, r.Dst.Addr().AsSlice())
		}
		if r.Src.IsValid() {
			ae.Bytes(fraSrc, r.Src.Addr().AsSlice())
		}
		ae.String(fraIifname, r.In)
		ae.Uint32(fraPriority, uint32(r.Priority))
		if r.Table != 0 {
			ae.Uint32(fraTable, uint32(r.Table))
		}
		ae.Uint8(fraProtocol, unix.RTPROT_STATIC) // the rules with Protocol follow the interfaces' addresses
	})
}

// ntfProxy is NTF_PROXY, include/uapi/linux/neighbour.h.
const ntfProxy = 8

// AddProxy makes the stack answer neighbour solicitations for an address that it forwards,
// if the interface's setting proxy_ndp is on.
func AddProxy(ifindex int, a netip.Addr) Request {
	return proxy(unix.RTM_NEWNEIGH, netlink.Create|netlink.Replace, ifindex, a)
}

// DelProxy undoes AddProxy.
func DelProxy(ifindex int, a netip.Addr) Request {
	q := proxy(unix.RTM_DELNEIGH, 0, ifindex, a)
	q.never = syscall.ENOENT
	return q
}

func proxy(typ netlink.HeaderType, flags netlink.HeaderFlags, ifindex int, a netip.Addr) Request {
	head := make([]byte, sizeofNdMsg) // struct ndmsg
	head[0], head[10] = family(a), ntfProxy
	binary.NativeEndian.PutUint32(head[4:], uint32(ifindex))
	return request(typ, flags, head, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.NDA_DST, a.AsSlice()) })
}

// MTUMetrics returns the Metrics of a route with an MTU of its own.
func MTUMetrics(mtu int) string {
	b, err := attributes(func(ae *netlink.AttributeEncoder) { ae.Uint32(unix.RTAX_MTU, uint32(mtu)) })
	if err != nil {
		return "" // an encoder fails only for data that is too long
	}
	return string(b)
}
