// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Route is an entry of a routing table.
type Route struct {
	Type    uint8 // RTN_*; 0: unicast
	Table   int
	Dst     netip.Prefix // set for the default route too: 0.0.0.0/0 or ::/0
	Gateway netip.Addr   // zero: the destination is on the link
	Src     netip.Addr   // zero: the stack chooses
	Ifindex int
	Metric  int
	OnLink  bool   // the gateway is on the link although no address implies it
	Scope   uint8  // of IPv4
	Metrics string // raw RTA_METRICS: MTU, windows and the like
	Pref    uint8  // of IPv6: RTA_PREF, ICMPV6_ROUTER_PREF_*
	Proto   uint8
}

// rtaPref is RTA_PREF, include/uapi/linux/rtnetlink.h.
const rtaPref = 20

// Routes lists the unicast routes of all tables that lead to a single interface.
func (n *Netlink) Routes() ([]Route, error) {
	msgs, err := n.r.request(unix.RTM_GETROUTE, netlink.Dump, make([]byte, unix.SizeofRtMsg), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("listing the stack's routes: %w", err)
	}
	var routes []Route
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg {
			continue
		}
		r, ok, err := parseRoute(m.Data)
		if err != nil {
			return nil, fmt.Errorf("listing the stack's routes: %w", err)
		}
		if ok {
			routes = append(routes, r)
		}
	}
	return routes, nil
}

// parseRoute parses a struct rtmsg and its attributes.
func parseRoute(b []byte) (r Route, ok bool, err error) {
	flags := binary.NativeEndian.Uint32(b[8:])
	if b[7] != unix.RTN_UNICAST || flags&unix.RTM_F_CLONED != 0 {
		return r, false, nil
	}
	var zero netip.Addr
	switch b[0] {
	case unix.AF_INET:
		zero = netip.IPv4Unspecified()
	case unix.AF_INET6:
		zero = netip.IPv6Unspecified()
	default:
		return r, false, nil
	}
	r = Route{Table: int(b[4]), Dst: netip.PrefixFrom(zero, int(b[1])), Proto: b[5], OnLink: flags&unix.RTNH_F_ONLINK != 0}
	if b[0] == unix.AF_INET {
		r.Scope = b[6]
	}
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofRtMsg:])
	if err != nil {
		return r, false, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.RTA_DST:
			a, _ := netip.AddrFromSlice(ad.Bytes())
			r.Dst = netip.PrefixFrom(a, int(b[1]))
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.RTA_VIA: // a gateway of the other family
			if via := ad.Bytes(); len(via) > 2 {
				r.Gateway, _ = netip.AddrFromSlice(via[2:])
			}
		case unix.RTA_PREFSRC:
			r.Src, _ = netip.AddrFromSlice(ad.Bytes())
		case unix.RTA_OIF:
			r.Ifindex = int(ad.Uint32())
		case unix.RTA_PRIORITY:
			r.Metric = int(ad.Uint32())
		case unix.RTA_TABLE:
			r.Table = int(ad.Uint32())
		case unix.RTA_METRICS:
			r.Metrics = string(ad.Bytes())
		case rtaPref:
			r.Pref = ad.Uint8()
		}
	}
	return r, r.Ifindex != 0, ad.Err()
}

// SetRoute adds a route, or replaces the one with the same table, destination and metric.
func SetRoute(e Route) Request {
	return request(unix.RTM_NEWROUTE, netlink.Create|netlink.Replace, e.head(), e.attributes)
}

// DelRoute removes a route, if it exists.
func DelRoute(e Route) Request {
	q := request(unix.RTM_DELROUTE, 0, e.head(), e.attributes)
	q.never = syscall.ESRCH
	return q
}

// head is struct rtmsg, include/uapi/linux/rtnetlink.h.
func (e *Route) head() []byte {
	head := make([]byte, unix.SizeofRtMsg)
	head[0] = family(e.Dst.Addr())
	head[1] = uint8(e.Dst.Bits())
	head[4] = unix.RT_TABLE_UNSPEC // RTA_TABLE has the number, whatever its size
	head[5] = e.Proto
	head[6] = e.Scope
	head[7] = cmp.Or(e.Type, unix.RTN_UNICAST)
	if e.OnLink {
		binary.NativeEndian.PutUint32(head[8:], unix.RTNH_F_ONLINK)
	}
	return head
}

func (e *Route) attributes(ae *netlink.AttributeEncoder) {
	if e.Dst.Bits() > 0 {
		ae.Bytes(unix.RTA_DST, e.Dst.Masked().Addr().AsSlice())
	}
	switch {
	case !e.Gateway.IsValid():
	case family(e.Gateway) == family(e.Dst.Addr()):
		ae.Bytes(unix.RTA_GATEWAY, e.Gateway.AsSlice())
	default: // struct rtvia
		ae.Bytes(unix.RTA_VIA, append(binary.NativeEndian.AppendUint16(nil, uint16(family(e.Gateway))), e.Gateway.AsSlice()...))
	}
	if e.Src.IsValid() {
		ae.Bytes(unix.RTA_PREFSRC, e.Src.AsSlice())
	}
	if e.Metric != 0 {
		ae.Uint32(unix.RTA_PRIORITY, uint32(e.Metric))
	}
	if e.Metrics != "" {
		ae.Bytes(unix.RTA_METRICS, []byte(e.Metrics))
	}
	if e.Pref != 0 {
		ae.Uint8(rtaPref, e.Pref)
	}
	ae.Uint32(unix.RTA_OIF, uint32(e.Ifindex))
	ae.Uint32(unix.RTA_TABLE, uint32(e.Table))
}

// Attributes and action of rules, include/uapi/linux/fib_rules.h.
const (
	fraSrc      = 2
	fraIif      = 3
	fraPriority = 6
	fraTable    = 15
	fraProtocol = 21
	frActTable  = 1
	sizeRuleHdr = 12
)

// Rule is `from Src lookup Table`, or `iif In lookup Table`.
type Rule struct {
	Priority int
	Src      netip.Addr // with In: its family, otherwise unspecified
	In       string     // of packets that this interface received
	Table    int
}

// Rules lists the rules that have our Protocol.
func (n *Netlink) Rules() ([]Rule, error) {
	msgs, err := n.r.request(unix.RTM_GETRULE, netlink.Dump, make([]byte, sizeRuleHdr), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("listing the stack's rules: %w", err)
	}
	var rules []Rule
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWRULE || len(m.Data) < sizeRuleHdr {
			continue
		}
		r := Rule{Table: int(m.Data[4])}
		ad, err := netlink.NewAttributeDecoder(m.Data[sizeRuleHdr:])
		if err != nil {
			return nil, fmt.Errorf("listing the stack's rules: %w", err)
		}
		proto := uint8(0)
		for ad.Next() {
			switch ad.Type() {
			case fraSrc:
				r.Src, _ = netip.AddrFromSlice(ad.Bytes())
			case fraPriority:
				r.Priority = int(ad.Uint32())
			case fraTable:
				r.Table = int(ad.Uint32())
			case fraProtocol:
				proto = ad.Uint8()
			}
		}
		if err := ad.Err(); err != nil {
			return nil, fmt.Errorf("listing the stack's rules: %w", err)
		}
		if proto == Protocol && r.Src.IsValid() {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// AddRule adds a rule, unless it exists.
func AddRule(r Rule) Request {
	q := r.request(unix.RTM_NEWRULE, netlink.Create|netlink.Excl)
	q.never = syscall.EEXIST
	return q
}

// DelRule removes a rule, if it exists.
func DelRule(r Rule) Request {
	q := r.request(unix.RTM_DELRULE, 0)
	q.never = syscall.ENOENT
	return q
}

func (r Rule) request(typ netlink.HeaderType, flags netlink.HeaderFlags) Request {
	head := make([]byte, sizeRuleHdr)
	head[0] = family(r.Src)
	if r.In == "" {
		head[2] = uint8(r.Src.BitLen()) // src_len
	}
	head[7] = frActTable
	return request(typ, flags, head, func(ae *netlink.AttributeEncoder) {
		if r.In == "" {
			ae.Bytes(fraSrc, r.Src.AsSlice())
		} else {
			ae.String(fraIif, r.In)
		}
		ae.Uint32(fraPriority, uint32(r.Priority))
		ae.Uint32(fraTable, uint32(r.Table))
		ae.Uint8(fraProtocol, Protocol)
	})
}

// sizeofNdMsg is the size of struct ndmsg, include/uapi/linux/neighbour.h.
const sizeofNdMsg = 12

// Unanswered returns requests that delete the entries of those neighbours of an interface
// that have not answered so far. For the next packet, the stack then sends a new request
// at once. Otherwise the kernel would first finish its attempts and then report to
// sockets that the host is unreachable.
func (n *Netlink) Unanswered(ifindex int) ([]Request, error) {
	msgs, err := n.r.request(unix.RTM_GETNEIGH, netlink.Dump, make([]byte, sizeofNdMsg), func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, fmt.Errorf("listing the stack's neighbours: %w", err)
	}
	var all []Request
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWNEIGH || len(m.Data) < sizeofNdMsg || int(binary.NativeEndian.Uint32(m.Data[4:])) != ifindex {
			continue
		}
		if state := binary.NativeEndian.Uint16(m.Data[8:]); state&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) == 0 {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[sizeofNdMsg:])
		if err != nil {
			return nil, fmt.Errorf("listing the stack's neighbours: %w", err)
		}
		for ad.Next() {
			if ad.Type() != unix.NDA_DST {
				continue
			}
			head := make([]byte, sizeofNdMsg)
			copy(head, m.Data[:8]) // family and interface index
			dst := ad.Bytes()
			q := request(unix.RTM_DELNEIGH, 0, head, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.NDA_DST, dst) })
			q.never = unix.ENOENT
			all = append(all, q)
		}
	}
	return all, nil
}
