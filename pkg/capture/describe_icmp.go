// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// listenerReport2 is Version 2 Multicast Listener Report (RFC 3810), for which
// gopacket has no name.
const listenerReport2 = 143

func (b *text) icmp4(i *layers.ICMPv4) {
	b.add("%s > %s: ICMP ", b.src, b.dst)
	if len(i.Contents) < 8 {
		b.WriteString("header")
		b.cut("icmp")
		return
	}
	switch typ := i.TypeCode.Type(); typ {
	case layers.ICMPv4TypeEchoRequest, layers.ICMPv4TypeEchoReply:
		b.add("%s, id %d, seq %d", words(i.TypeCode.String()), i.Id, i.Seq)
	case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem, layers.ICMPv4TypeRedirect:
		b.WriteString(words(i.TypeCode.String()))
		if typ == layers.ICMPv4TypeDestinationUnreachable && i.TypeCode.Code() == layers.ICMPv4CodeFragmentationNeeded {
			b.add(", mtu %d", i.Seq) // RFC 1191, section 4: the last two bytes
		}
		b.about(i.Payload, layers.LayerTypeIPv4)
	default:
		b.WriteString(words(i.TypeCode.String()))
	}
	b.add(", length %d", b.left)
}

// about describes the packet that caused an error.
func (b *text) about(quoted []byte, first gopacket.LayerType) {
	pkt := gopacket.NewPacket(quoted, first, gopacket.DecodeOptions{NoCopy: true})
	net := pkt.NetworkLayer()
	if net == nil {
		return
	}
	from, to := net.NetworkFlow().Endpoints()
	var proto fmt.Stringer = layers.IPProtocol(0)
	switch ip := net.(type) {
	case *layers.IPv4:
		proto = ip.Protocol
	case *layers.IPv6:
		proto = ip.NextHeader
	}
	// For TCP, only eight bytes are guaranteed (RFC 792). They contain the
	// ports, but not the whole header.
	if above := net.LayerPayload(); len(above) >= 4 && (proto == layers.IPProtocolTCP || proto == layers.IPProtocolUDP) {
		b.add(", of %s %s.%d > %s.%d", proto, from, binary.BigEndian.Uint16(above), to, binary.BigEndian.Uint16(above[2:]))
		return
	}
	b.add(", of %s %s > %s", proto, from, to)
}

func (b *text) icmp6(i *layers.ICMPv6, rest []gopacket.Layer) {
	kind := words(i.TypeCode.String())
	if i.TypeCode.Type() == listenerReport2 {
		kind = "multicast listener report v2"
	}
	b.add("%s > %s: ICMP6, %s", b.src, b.dst, kind)
	var options layers.ICMPv6Options
	if len(rest) > 0 {
		switch l := rest[0].(type) {
		case *layers.ICMPv6Echo:
			b.add(", id %d, seq %d", l.Identifier, l.SeqNumber)
		case *layers.ICMPv6NeighborSolicitation:
			b.add(", who has %s", netAddr(l.TargetAddress))
			options = l.Options
		case *layers.ICMPv6NeighborAdvertisement:
			b.add(", tgt is %s", netAddr(l.TargetAddress))
			options = l.Options
		case *layers.ICMPv6RouterSolicitation:
			options = l.Options
		case *layers.ICMPv6RouterAdvertisement:
			b.add(", hop limit %d, flags [%s], router lifetime %v", l.HopLimit, routerFlags(l.Flags), time.Duration(l.RouterLifetime)*time.Second)
			options = l.Options
		case *layers.ICMPv6Redirect:
			b.add(", %s to %s", netAddr(l.DestinationAddress), netAddr(l.TargetAddress))
		default:
			// Errors carry four bytes, then the packet that caused
			// them (RFC 4443).
			if i.TypeCode.Type() < 128 && len(i.Payload) >= 4 {
				if i.TypeCode.Type() == layers.ICMPv6TypePacketTooBig {
					b.add(", mtu %d", binary.BigEndian.Uint32(i.Payload))
				}
				b.about(i.Payload[4:], layers.LayerTypeIPv6)
			}
		}
	}
	for _, o := range options {
		b.discovered(o)
	}
	if b.broken() {
		b.cut("icmp6")
	}
	b.add(", length %d", b.left)
}

// routerFlags formats the flags of RFC 4861, section 4.2.
func routerFlags(f uint8) string {
	var on []string
	if f&0x80 != 0 {
		on = append(on, "managed")
	}
	if f&0x40 != 0 {
		on = append(on, "other")
	}
	if len(on) == 0 {
		return "none"
	}
	return strings.Join(on, ", ")
}

// discovered describes an option of neighbour discovery (RFC 4861, section 4.6;
// RFC 8106, section 5.1). Its data begins after type and length.
func (b *text) discovered(o layers.ICMPv6Option) {
	switch o.Type {
	case layers.ICMPv6OptSourceAddress, layers.ICMPv6OptTargetAddress:
		if len(o.Data) >= 6 {
			b.add(", lladdr %s", net.HardwareAddr(o.Data[:6]))
		}
	case layers.ICMPv6OptPrefixInfo:
		if len(o.Data) >= 30 {
			b.add(", prefix %s/%d", netAddr(o.Data[14:30]), o.Data[0])
		}
	case layers.ICMPv6OptMTU:
		if len(o.Data) >= 6 {
			b.add(", mtu %d", binary.BigEndian.Uint32(o.Data[2:]))
		}
	case layers.ICMPv6OptRecursiveDNSServer:
		for at := 6; at+16 <= len(o.Data); at += 16 {
			b.add(", dns %s", netAddr(o.Data[at:at+16]))
		}
	}
}

// words converts gopacket's names to words: DestinationUnreachable(Port)
// becomes "destination unreachable (port)".
func words(name string) string {
	var b strings.Builder
	before := ' '
	for _, r := range name {
		if r == '(' || unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	return b.String()
}
