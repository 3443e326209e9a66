// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/lklrun/lklrun/internal/link/ring"
	"github.com/lklrun/lklrun/internal/link/user/rules"

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

// filterUnreachable answers packets for which the host has no route, and passes
// the others to next.
func (g *Gateway) filterUnreachable(next packetHandler) packetHandler {
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		to := g.onHost(id.LocalAddress)
		// Packets to multicast and similar addresses get no ICMP error
		// (RFC 1122, 3.2.2).
		if g.proxy != nil || !to.IsGlobalUnicast() || !begins(pkt) || g.isDNS(id.LocalAddress, id.LocalPort) {
			return next(id, pkt)
		}
		why := routeError(to)
		if why == nil {
			return next(id, pkt)
		}
		g.log.Debug("gateway: the host has no route", "to", to)
		g.link.refuse(pkt, why)
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

// routeError returns an ICMP error if the host has no route to an address, or no source
// address for it. The router waits in the meantime, so routeError makes only three system
// calls.
func routeError(to netip.Addr) *icmpError {
	fd, err := probe(to)
	switch {
	case err == nil:
		unix.Close(fd)
	case errors.Is(err, unix.EHOSTUNREACH): // a route of type unreachable
		return noHost
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EAFNOSUPPORT):
		return noRoute
	}
	return nil
}

// icmpError is an ICMP error: its type and code for each family.
type icmpError struct{ type4, code4, type6, code6 uint8 }

const unreachable4, unreachable6 = uint8(header.ICMPv4DstUnreachable), uint8(header.ICMPv6DstUnreachable)

var (
	noRoute     = &icmpError{unreachable4, uint8(header.ICMPv4NetUnreachable), unreachable6, uint8(header.ICMPv6NetworkUnreachable)}
	noHost      = &icmpError{unreachable4, uint8(header.ICMPv4HostUnreachable), unreachable6, uint8(header.ICMPv6AddressUnreachable)}
	noPort      = &icmpError{unreachable4, uint8(header.ICMPv4PortUnreachable), unreachable6, uint8(header.ICMPv6PortUnreachable)}
	prohibited  = &icmpError{unreachable4, uint8(header.ICMPv4AdminProhibited), unreachable6, uint8(header.ICMPv6Prohibited)}
	timeExpired = &icmpError{uint8(header.ICMPv4TimeExceeded), 0, uint8(header.ICMPv6TimeExceeded), 0}
)

// hostErrors are the ICMP errors for the errors of the host's connect() and send(). Linux
// has no ICMP error for ETIMEDOUT, for which a router gives no answer. A router without free
// ports or memory answers "host unreachable" (RFC 6888, REQ-11). EINVAL is the error of a
// blackhole route.
var hostErrors = map[unix.Errno]*icmpError{
	unix.ECONNREFUSED: noPort,
	unix.ENETUNREACH:  noRoute, unix.ENETDOWN: noRoute, unix.EINVAL: noRoute, unix.EAFNOSUPPORT: noRoute,
	unix.EHOSTUNREACH: noHost, unix.EHOSTDOWN: noHost,
	unix.EACCES: prohibited, unix.EPERM: prohibited,
	unix.EADDRNOTAVAIL: noHost, unix.EAGAIN: noHost, unix.EMFILE: noHost, unix.ENFILE: noHost,
	unix.ENOBUFS: noHost, unix.ENOMEM: noHost, unix.EADDRINUSE: noHost,
}

// remedies are for the errors whose cause is this machine, and not the destination or its
// network.
var remedies = map[unix.Errno]string{
	unix.EADDRNOTAVAIL: "the host has no free port or no address for it; widen net.ipv4.ip_local_port_range on the host, or close connections",
	unix.EAGAIN:        "the host has no free port for it; widen net.ipv4.ip_local_port_range on the host",
	unix.EACCES:        "the host's routes or security rules prohibit it",
	unix.EPERM:         "the host's firewall prohibits it",
	unix.EINVAL:        "the host's route to it is of type blackhole",
	unix.EMFILE:        "lklrun has too many open files; raise the limit (ulimit -Hn)",
	unix.ENFILE:        "the host has too many open files",
	unix.ENOBUFS:       "the host has no memory for it",
	unix.ENOMEM:        "the host has no memory for it",
}

// answerFor returns the ICMP error for a failed connect() or send() of the host, or nil if
// a router would not answer. If this machine is the cause, it tells the user, once for
// each error.
func (g *Gateway) answerFor(to netip.AddrPort, err error) *icmpError {
	var refused *rules.DeniedError
	if errors.As(err, &refused) {
		return prohibited
	}
	var errno unix.Errno
	errors.As(err, &errno)
	if remedy := remedies[errno]; remedy != "" {
		if _, again := g.reported.LoadOrStore(errno, true); !again {
			go g.warn(fmt.Sprintf("the user-mode gateway cannot connect to %s: %v: %s", to, errno, remedy)) // the terminal may block
		}
	}
	why := hostErrors[errno]
	if why == nil && !isTimeout(err) && !errors.Is(err, context.Canceled) {
		why = noHost
	}
	return why
}

// refuse answers a packet of the stack with an ICMP error from the gateway.
func (l *link) refuse(pkt *stack.PacketBuffer, why *icmpError) {
	l.sendError(pkt.ToView().AsSlice(), why, netip.Addr{})
}

// sendError answers an IP packet of the stack with an ICMP error, from the gateway if from is
// invalid.
func (l *link) sendError(packet []byte, why *icmpError, from netip.Addr) {
	protocol := header.IPv4ProtocolNumber
	var answer []byte
	if header.IPVersion(packet) == header.IPv6Version {
		protocol = header.IPv6ProtocolNumber
		answer = error6(orElse(from, l.cfg.Gateway6), packet, why)
	} else {
		answer = error4(orElse(from, l.cfg.Gateway), packet, why)
	}
	if err := l.send(protocol, answer); err != nil {
		l.log.Debug("gateway: sending an ICMP error", "error", err)
	}
}

func orElse(a, otherwise netip.Addr) netip.Addr {
	if a.IsValid() {
		return a
	}
	return otherwise
}

// send passes one IP packet to the stack.
func (l *link) send(protocol tcpip.NetworkProtocolNumber, packet []byte) error {
	return l.sendTo(l.stackMAC(), protocol, packet)
}

func (l *link) sendTo(to tcpip.LinkAddress, protocol tcpip.NetworkProtocolNumber, packet []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	defer l.flush()
	return l.write([ring.HeaderSize]byte{}, to, mac, protocol, packet)
}

// error6 builds an ICMP error (RFC 4443, 3) about packet.
func error6(from netip.Addr, packet []byte, why *icmpError) []byte {
	body := make([]byte, header.ICMPv6DstUnreachableMinimumSize, header.IPv6MinimumMTU)
	body[0], body[1] = why.type6, why.code6
	return packet6(from, peer(header.IPv6(packet).SourceAddress()), append(body, packet[:min(len(packet), quoteMax6)]...))
}

// packet6 builds an IPv6 packet with an ICMP message, whose checksum it adds.
func packet6(from, to netip.Addr, message []byte) []byte {
	b := make([]byte, header.IPv6MinimumSize, header.IPv6MinimumSize+len(message))
	src, dst := tcpip.AddrFromSlice(from.AsSlice()), tcpip.AddrFromSlice(to.AsSlice())
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(message)), TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64, SrcAddr: src, DstAddr: dst,
	})
	icmp, rest := header.ICMPv6(message[:header.ICMPv6MinimumSize]), message[header.ICMPv6MinimumSize:]
	icmp.SetChecksum(0)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: icmp, Src: src, Dst: dst, PayloadCsum: checksum.Checksum(rest, 0), PayloadLen: len(rest),
	}))
	return append(b, message...)
}

// error4 builds an ICMP error (RFC 792) about packet.
func error4(from netip.Addr, packet []byte, why *icmpError) []byte {
	body := make([]byte, header.ICMPv4MinimumSize, header.ICMPv4MinimumSize+quoteMax4)
	body[0], body[1] = why.type4, why.code4
	return packet4(from, peer(header.IPv4(packet).SourceAddress()), append(body, packet[:min(len(packet), quoteMax4)]...))
}

// packet4 builds an IPv4 packet with an ICMP message, whose checksum it adds.
func packet4(from, to netip.Addr, message []byte) []byte {
	b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(message))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b) + len(message)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: tcpip.AddrFromSlice(from.AsSlice()), DstAddr: tcpip.AddrFromSlice(to.AsSlice()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(message)
	icmp.SetChecksum(0)
	icmp.SetChecksum(^checksum.Checksum(message, 0))
	return append(b, message...)
}
