// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func (b *text) arp(a *layers.ARP) {
	ip := func(p []byte) string { return netAddr(p).String() }
	if len(a.SourceProtAddress) != 4 || len(a.DstProtAddress) != 4 {
		b.add("ARP, operation %d", a.Operation)
		return
	}
	switch a.Operation {
	case layers.ARPRequest:
		b.add("ARP, Request who-has %s tell %s", ip(a.DstProtAddress), ip(a.SourceProtAddress))
	case layers.ARPReply:
		b.add("ARP, Reply %s is-at %s", ip(a.SourceProtAddress), net.HardwareAddr(a.SourceHwAddress))
	default:
		b.add("ARP, operation %d, %s asks for %s", a.Operation, ip(a.SourceProtAddress), ip(a.DstProtAddress))
	}
	b.add(", length %d", len(a.Contents))
}

func netAddr(ip []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(ip) // the zero address, which prints as "invalid IP"
	return a
}

func (b *text) ipv4(ip *layers.IPv4, rest []gopacket.Layer) {
	b.src, b.dst = netAddr(ip.SrcIP), netAddr(ip.DstIP)
	b.WriteString("IP ")
	if ip.IHL < 5 || len(ip.SrcIP) == 0 {
		b.WriteString("header")
		b.cut("ip")
		return
	}
	total := int(binary.BigEndian.Uint16(ip.Contents[2:]))
	if total == 0 { // segmentation offload: longer than the field allows
		total = b.behind() + len(ip.Contents)
	}
	b.left = total - int(ip.IHL)*4
	if b.describer.style.Verbose {
		b.add("(tos %#x, ttl %d, id %d, flags [%s], length %d) ", ip.TOS, ip.TTL, ip.Id, fragmentFlags(ip.Flags), total)
	}
	if ip.FragOffset > 0 {
		b.add("%s > %s: %s fragment at %d, length %d", b.src, b.dst, ip.Protocol, int(ip.FragOffset)*8, b.left)
		return
	}
	b.transport(ip.Protocol, rest)
	if ip.Flags&layers.IPv4MoreFragments != 0 {
		b.WriteString(", more fragments follow")
	}
}

// behind returns the number of bytes on the wire after the present layer.
func (b *text) behind() int { return max(b.packet.Length-b.in, 0) }

func fragmentFlags(f layers.IPv4Flag) string {
	switch {
	case f&layers.IPv4DontFragment != 0:
		return "DF"
	case f&layers.IPv4MoreFragments != 0:
		return "+"
	}
	return "none"
}

func (b *text) ipv6(ip *layers.IPv6, rest []gopacket.Layer) {
	b.src, b.dst = netAddr(ip.SrcIP), netAddr(ip.DstIP)
	b.WriteString("IP6 ")
	if len(ip.SrcIP) == 0 {
		b.WriteString("header")
		b.cut("ip6")
		return
	}
	b.left = int(ip.Length)
	if b.left == 0 {
		b.left = b.behind()
	}
	if b.describer.style.Verbose {
		b.add("(class %#x, flowlabel %#x, hlim %d, payload length %d) ", ip.TrafficClass, ip.FlowLabel, ip.HopLimit, b.left)
	}
	next := ip.NextHeader
	var passed []string
	for len(rest) > 0 {
		switch l := rest[0].(type) {
		case *layers.IPv6HopByHop:
			// gopacket also treats it as part of the IPv6 header
			// itself.
			next, passed = l.NextHeader, append(passed, "HBH")
			b.left -= len(l.Contents)
		case *layers.IPv6Routing:
			next, passed = l.NextHeader, append(passed, "RT")
			b.left -= len(l.Contents)
		case *layers.IPv6Destination:
			next, passed = l.NextHeader, append(passed, "DSTOPT")
			b.left -= len(l.Contents)
		case *layers.IPv6Fragment:
			b.add("%s > %s: %s fragment at %d, length %d", b.src, b.dst, l.NextHeader, int(l.FragmentOffset)*8, b.left-8)
			return
		default:
			if len(passed) > 0 {
				b.WriteString("(" + strings.Join(passed, " ") + ") ")
			}
			b.transport(next, rest)
			return
		}
		rest = rest[1:]
	}
	b.transport(next, nil)
}

// transport describes the layer above IP. rest begins with that layer if its
// header was captured.
func (b *text) transport(proto layers.IPProtocol, rest []gopacket.Layer) {
	if len(rest) > 0 {
		switch l := rest[0].(type) {
		case *layers.TCP:
			b.tcp(l)
			return
		case *layers.UDP:
			b.udp(l, rest[1:])
			return
		case *layers.ICMPv4:
			b.icmp4(l)
			return
		case *layers.ICMPv6:
			b.icmp6(l, rest[1:])
			return
		}
	}
	b.add("%s > %s: %s, length %d", b.src, b.dst, proto, b.left)
	switch proto {
	case layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolICMPv4, layers.IPProtocolICMPv6:
		b.cut(strings.ToLower(proto.String()))
	}
}

func (b *text) udp(u *layers.UDP, rest []gopacket.Layer) {
	if len(u.Contents) < 8 {
		b.add("%s > %s: UDP, length %d", b.src, b.dst, b.left)
		b.cut("udp")
		return
	}
	b.add("%s.%d > %s.%d: ", b.src, uint16(u.SrcPort), b.dst, uint16(u.DstPort))
	length := max(b.left-8, 0)
	if len(rest) > 0 {
		switch l := rest[0].(type) {
		case *layers.DNS:
			b.dns(l, b.broken())
			b.add(", length %d", length)
			return
		case *layers.DHCPv4:
			b.dhcp4(l)
			b.add(", length %d", length)
			return
		case *layers.DHCPv6:
			b.add("DHCPv6 %s, length %d", l.MsgType, length)
			return
		}
	}
	b.add("UDP, length %d", length)
}

// broken reports whether a layer could not be decoded.
func (b *text) broken() bool { return b.decoded.ErrorLayer() != nil }
