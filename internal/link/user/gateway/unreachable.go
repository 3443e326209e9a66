// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"errors"
	"net/netip"

	"github.com/lklrun/lklrun/internal/link/ring"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// The stack always has a default route to the gateway, so the host's present
// routes decide about each flow. If the host has no route, the gateway answers
// as a router does. Then connect(2) in the stack fails with ENETUNREACH at
// once, and a program that also has an IPv4 address tries that one.

// quoteMax4 and quoteMax6 are the maximum size of the packet quoted in an ICMP
// error. The limits are 576 bytes for IPv4 (RFC 1812, 4.3.2.3) and the minimum
// MTU of IPv6 (RFC 4443, 2.4).
const (
	quoteMax4 = 576 - header.IPv4MinimumSize - header.ICMPv4MinimumSize
	quoteMax6 = header.IPv6MinimumMTU - header.IPv6MinimumSize - header.ICMPv6DstUnreachableMinimumSize
)

// packetHandler handles a packet that has no endpoint.
type packetHandler = func(stack.TransportEndpointID, *stack.PacketBuffer) bool

// unlessUnreachable answers packets for which the host has no route, and passes
// the others to next.
func (g *Gateway) unlessUnreachable(next packetHandler) packetHandler {
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		to := g.onHost(id.LocalAddress)
		// Packets to multicast and similar addresses get no ICMP error
		// (RFC 1122, 3.2.2).
		if !to.IsGlobalUnicast() || !begins(pkt) || g.isDNS(id.LocalAddress, id.LocalPort) || routed(to) {
			return next(id, pkt)
		}
		g.log.Debug("gateway: the host has no route", "to", to)
		if err := g.link.unreachable(pkt, noRoute); err != nil {
			g.log.Debug("gateway: sending ICMP unreachable", "error", err)
		}
		return true
	}
}

// begins reports whether a packet starts a flow: a SYN, or any datagram.
func begins(pkt *stack.PacketBuffer) bool {
	if pkt.TransportProtocolNumber != header.TCPProtocolNumber {
		return true
	}
	flags := header.TCP(pkt.TransportHeader().Slice()).Flags()
	return flags&(header.TCPFlagSyn|header.TCPFlagAck|header.TCPFlagRst) == header.TCPFlagSyn
}

// routed reports whether the host has a route to an address, and a source
// address for it. The router waits in the meantime, so routed makes only three
// system calls.
func routed(to netip.Addr) bool {
	fd, err := probe(to)
	if err == nil {
		unix.Close(fd)
		return true
	}
	return !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) &&
		!errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EAFNOSUPPORT)
}

// icmpCode is the code of an ICMP error "destination unreachable".
type icmpCode struct {
	four header.ICMPv4Code
	six  header.ICMPv6Code
}

var (
	noRoute    = icmpCode{header.ICMPv4NetUnreachable, header.ICMPv6NetworkUnreachable}
	prohibited = icmpCode{header.ICMPv4AdminProhibited, header.ICMPv6Prohibited}
)

// unreachable answers a packet of the stack with an ICMP error from the
// gateway.
func (l *link) unreachable(pkt *stack.PacketBuffer, why icmpCode) error {
	packet := pkt.ToView().AsSlice()
	var answer []byte
	if pkt.NetworkProtocolNumber == header.IPv6ProtocolNumber {
		answer = unreachable6(l.cfg.Gateway6, packet, why.six)
	} else {
		answer = unreachable4(l.cfg.Gateway, packet, why.four)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	defer l.flush()
	return l.write([ring.HeaderSize]byte{}, l.stackMAC(), mac, pkt.NetworkProtocolNumber, answer)
}

// unreachable6 builds the answer "destination unreachable" (RFC 4443, 3.1) to
// packet.
func unreachable6(from netip.Addr, packet []byte, code header.ICMPv6Code) []byte {
	quote := packet[:min(len(packet), quoteMax6)]
	const head = header.IPv6MinimumSize + header.ICMPv6DstUnreachableMinimumSize
	b := make([]byte, head, head+len(quote))
	src, dst := tcpip.AddrFromSlice(from.AsSlice()), header.IPv6(packet).SourceAddress()
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength:     uint16(header.ICMPv6DstUnreachableMinimumSize + len(quote)),
		TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64, SrcAddr: src, DstAddr: dst,
	})
	icmp := header.ICMPv6(b[header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(code)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: icmp, Src: src, Dst: dst, PayloadCsum: checksum.Checksum(quote, 0), PayloadLen: len(quote),
	}))
	return append(b, quote...)
}

// unreachable4 builds the answer "destination unreachable" (RFC 792) to packet.
func unreachable4(from netip.Addr, packet []byte, code header.ICMPv4Code) []byte {
	quote := packet[:min(len(packet), quoteMax4)]
	const head = header.IPv4MinimumSize + header.ICMPv4MinimumSize
	b := make([]byte, head, head+len(quote))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(head + len(quote)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: tcpip.AddrFromSlice(from.AsSlice()), DstAddr: header.IPv4(packet).SourceAddress(),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(b[header.IPv4MinimumSize:])
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(code)
	icmp.SetChecksum(header.ICMPv4Checksum(icmp, checksum.Checksum(quote, 0)))
	return append(b, quote...)
}
