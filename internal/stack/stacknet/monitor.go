// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Flags of an interface that router advertisements set: IFLA_INET6_FLAGS,
// include/net/if_inet6.h.
const (
	RAReceived = 0x20 // IF_RA_RCVD
	RAManaged  = 0x40 // IF_RA_MANAGED: addresses by DHCPv6
	RAOther    = 0x80 // IF_RA_OTHERCONF: other settings by DHCPv6
)

// News is a change that a Monitor reports for one interface; the fields that are not nil
// have changed.
type News struct {
	IfIndex int
	Link    *LinkNews
	Addr6   *AddressNews
	RDNSS   []NameServers // from a router advertisement
	PREF64  *PREF64       // from a router advertisement
}

// PREF64 is the prefix of a NAT64 that a router announces (RFC 8781).
type PREF64 struct {
	Router   netip.Addr
	Prefix   netip.Prefix
	Lifetime time.Duration // 0: the router withdraws it
}

// LinkNews is the state of an interface.
type LinkNews struct {
	Gone    bool
	Carrier bool // up, with carrier
	MAC     net.HardwareAddr
	MTU     int
	RA      uint32 // RAReceived ...
	HasRA   bool   // RA is known
}

// AddressNews is an IPv6 address that was added, changed or removed.
type AddressNews struct {
	Prefix netip.Prefix
	Gone   bool
	Flags  uint32 // unix.IFA_F_*
}

// NameServers are the name servers or search domains of one router, with a lifetime (RFC
// 8106).
type NameServers struct {
	Router   netip.Addr
	Servers  []netip.Addr
	Domains  []string
	Lifetime time.Duration
}

// monitorGroups are the groups that a Monitor joins.
var monitorGroups = []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFINFO, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_ND_USEROPT}

// Monitor calls tell with the present state of the stack's interfaces and their IPv6
// addresses, then with each change, until ctx is done or the connection to the stack
// ends. If messages arrive too fast and some are lost, Monitor requests the state again.
func Monitor(ctx context.Context, c *stackconn.Conn, tell func(News)) error {
	conn, err := c.Netlink(ctx, unix.NETLINK_ROUTE, monitorGroups...)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := tellAll(ctx, c, tell); err != nil {
		return err
	}
	for {
		msgs, err := conn.Receive()
		if errors.Is(err, syscall.ENOBUFS) {
			if err := tellAll(ctx, c, tell); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range msgs {
			if n, ok := news(m); ok {
				tell(n)
			}
		}
	}
}

func tellAll(ctx context.Context, c *stackconn.Conn, tell func(News)) error {
	return withRoute(ctx, c, func(r *rtnl) error {
		all := func(typ netlink.HeaderType, head []byte) error {
			msgs, err := r.request(typ, netlink.Dump, head, func(*netlink.AttributeEncoder) {})
			for _, m := range msgs {
				if n, ok := news(m); ok {
					tell(n)
				}
			}
			return err
		}
		if err := all(unix.RTM_GETLINK, ifinfomsg(0, 0, 0)); err != nil {
			return err
		}
		head := make([]byte, unix.SizeofIfAddrmsg)
		head[0] = unix.AF_INET6
		return all(unix.RTM_GETADDR, head)
	})
}

// news parses one message; false if a Monitor does not report it.
func news(m netlink.Message) (News, bool) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return linkNews(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return addressNews(m)
	case unix.RTM_NEWNDUSEROPT:
		return userOption(m.Data)
	}
	return News{}, false
}

func linkNews(m netlink.Message) (News, bool) {
	l, err := ParseLink(m)
	six := l.Family == unix.AF_INET6 // the device's IPv6 state, whose deletion means that IPv6 ends, not the device
	if err != nil || m.Header.Type == unix.RTM_DELLINK && six || l.Family == unix.AF_BRIDGE {
		return News{}, false
	}
	return News{IfIndex: l.Index, Link: &LinkNews{
		Gone: m.Header.Type == unix.RTM_DELLINK, Carrier: l.Carries(), MAC: l.MAC, MTU: l.MTU, RA: l.RA, HasRA: l.HasRA,
	}}, true
}

func addressNews(m netlink.Message) (News, bool) {
	if len(m.Data) < unix.SizeofIfAddrmsg || m.Data[0] != unix.AF_INET6 {
		return News{}, false
	}
	n := News{IfIndex: int(binary.NativeEndian.Uint32(m.Data[4:]))}
	a := &AddressNews{Gone: m.Header.Type == unix.RTM_DELADDR, Flags: uint32(m.Data[2])}
	ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return News{}, false
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFA_ADDRESS:
			if addr, ok := netip.AddrFromSlice(ad.Bytes()); ok && addr.Is6() {
				a.Prefix = netip.PrefixFrom(addr, int(m.Data[1]))
			}
		case ifaFlags:
			a.Flags = ad.Uint32()
		}
	}
	if ad.Err() != nil || !a.Prefix.IsValid() {
		return News{}, false
	}
	n.Addr6 = a
	return n, true
}

// Limits of a userOption; routers send less.
const (
	mostServers = 8
	mostDomains = 8
)

// Options of neighbour discovery, RFC 8106.
const (
	optRDNSS  = 25
	optDNSSL  = 31
	optPREF64 = 38 // RFC 8781
)

// userOption parses struct nduseroptmsg (include/uapi/linux/rtnetlink.h) and the option
// of the router advertisement behind it.
func userOption(b []byte) (News, bool) {
	const head = 16
	if len(b) < head || b[0] != unix.AF_INET6 {
		return News{}, false
	}
	n := News{IfIndex: int(binary.NativeEndian.Uint32(b[4:]))}
	size := int(binary.NativeEndian.Uint16(b[2:]))
	if size < 8 || head+size > len(b) {
		return News{}, false
	}
	opt, rest := b[head:head+size], b[head+size:]
	var router netip.Addr
	if ad, err := netlink.NewAttributeDecoder(rest); err == nil {
		for ad.Next() {
			if ad.Type() == 1 { // NDUSEROPT_SRCADDR
				router, _ = netip.AddrFromSlice(ad.Bytes())
			}
		}
	}
	if opt[0] == optPREF64 {
		n.PREF64 = pref64(opt)
		if n.PREF64 == nil {
			return News{}, false
		}
		n.PREF64.Router = router
		return n, true
	}
	s := NameServers{Router: router, Lifetime: Forever}
	if life := binary.BigEndian.Uint32(opt[4:]); life != 1<<32-1 {
		s.Lifetime = time.Duration(life) * time.Second
	}
	switch opt[0] {
	case optRDNSS:
		for at := 8; at+16 <= len(opt) && len(s.Servers) < mostServers; at += 16 {
			a, _ := netip.AddrFromSlice(opt[at : at+16])
			if !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.Is4In6() {
				s.Servers = append(s.Servers, a)
			}
		}
	case optDNSSL:
		s.Domains = labels(opt[8:])
	}
	if len(s.Servers) == 0 && len(s.Domains) == 0 {
		return News{}, false
	}
	n.RDNSS = []NameServers{s}
	return n, true
}

// pref64 parses the option PREF64 (RFC 8781, 4); nil if it is invalid.
func pref64(opt []byte) *PREF64 {
	lengths := []int{96, 64, 56, 48, 40, 32}
	v := binary.BigEndian.Uint16(opt[2:])
	if len(opt) != 16 || int(v&7) >= len(lengths) {
		return nil
	}
	var a [16]byte
	copy(a[:12], opt[4:])
	p, err := netip.AddrFrom16(a).Prefix(lengths[v&7])
	if err != nil {
		return nil
	}
	return &PREF64{Prefix: p, Lifetime: time.Duration(v>>3) * 8 * time.Second}
}

// labels parses domain names in the encoding of RFC 1035, 3.1, padded with zeros.
func labels(b []byte) []string {
	var all []string
	name := ""
	for len(b) > 0 && len(all) < mostDomains {
		size := int(b[0])
		if size == 0 {
			if name != "" {
				all = append(all, name)
			}
			name, b = "", b[1:]
			continue
		}
		if size > 63 || 1+size > len(b) || len(name)+size > 253 {
			break
		}
		if name != "" {
			name += "."
		}
		name, b = name+string(b[1:1+size]), b[1+size:]
	}
	return all
}
