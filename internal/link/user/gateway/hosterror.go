// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// hostSocket is a socket of the host that sends datagrams or pings of the stack. Its error
// queue (IP_RECVERR) holds the ICMP errors about them, which it passes on to the stack.
type hostSocket struct {
	g        *Gateway
	conn     *net.UDPConn
	raw      interface{ Control(func(uintptr)) error }
	from, to netip.AddrPort // in the stack: of its program and of the destination
	ident    []byte         // identifier of the program's pings; nil: UDP
}

func newHostSocket(g *Gateway, conn *net.UDPConn, from, to netip.AddrPort) *hostSocket {
	s := &hostSocket{g: g, conn: conn, from: from, to: to}
	raw, err := conn.SyscallConn()
	if err != nil { // it is closed
		return s
	}
	s.raw = raw
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_RECVERR, 1)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVERR, 1) // only of IPv6 sockets
	})
	return s
}

// write sends a datagram to the host, or to the stack. If the host cannot send it, the stack
// gets an ICMP error. A datagram that the stack does not take is lost, as on a wire.
func (s *hostSocket) write(to net.Conn, b []byte) error {
	_, err := to.Write(b)
	if to != s.conn {
		return nil
	}
	return s.sent(b, err, func() error {
		_, err := to.Write(b)
		return err
	})
}

// sent handles the result of sending b. An error of an earlier datagram prevents the kernel
// from sending, so it then calls again.
func (s *hostSocket) sent(b []byte, err error, again func() error) error {
	if err != nil && s.passErrors() {
		err = again()
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	if errno != unix.EMSGSIZE { // lost, as on a wire
		if why := s.g.answerFor(s.to, err); why != nil {
			s.g.link.sendError(s.quote(b), why, netip.Addr{})
		}
	}
	return errno
}

// passErrors passes the ICMP errors about earlier datagrams on to the stack. It reports
// whether there were any.
func (s *hostSocket) passErrors() (any bool) {
	if s.raw == nil {
		return false
	}
	b, oob := make([]byte, quoteMax6), make([]byte, 512)
	_ = s.raw.Control(func(fd uintptr) {
		for {
			n, oobn, _, _, err := unix.Recvmsg(int(fd), b, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return
			}
			if why, from := parseError(oob[:oobn]); why != nil {
				any = true
				s.pass(why, from, b[:n])
			}
		}
	})
	return any
}

// pass passes an ICMP error about a datagram on to the stack.
func (s *hostSocket) pass(why *icmpError, from netip.Addr, datagram []byte) {
	if from.IsLoopback() { // the destination is the host itself
		from = s.to.Addr()
	}
	if from.Is4() != s.to.Addr().Is4() {
		from = netip.Addr{}
	}
	if s.ident == nil || len(datagram) >= header.ICMPv4MinimumSize {
		s.g.link.sendError(s.quote(datagram), why, from)
	}
}

// parseError returns the ICMP error in a control message of the error queue, and the address
// of its sender. The error is nil if it is not for the stack: the host itself splits
// datagrams according to the path's MTU.
func parseError(oob []byte) (*icmpError, netip.Addr) {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, netip.Addr{}
	}
	const size = 16 // of struct sock_extended_err, before the sender's address
	for _, m := range all {
		d := m.Data
		if len(d) < size {
			continue
		}
		origin, kind, code := d[4], d[5], d[6]
		why := &icmpError{kind, code, kind, code}
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR && origin == unix.SO_EE_ORIGIN_ICMP:
			if kind == unreachable4 && code != uint8(header.ICMPv4FragmentationNeeded) || kind == timeExpired.type4 {
				return why, offender(d[size:])
			}
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR && origin == unix.SO_EE_ORIGIN_ICMP6:
			if kind == unreachable6 || kind == timeExpired.type6 {
				return why, offender(d[size:])
			}
		}
	}
	return nil, netip.Addr{}
}

// offender returns the address in a struct sockaddr.
func offender(sa []byte) netip.Addr {
	switch {
	case len(sa) >= unix.SizeofSockaddrInet4 && binary.NativeEndian.Uint16(sa) == unix.AF_INET:
		return netip.AddrFrom4([4]byte(sa[4:8]))
	case len(sa) >= 24 && binary.NativeEndian.Uint16(sa) == unix.AF_INET6:
		return netip.AddrFrom16([16]byte(sa[8:24])).Unmap()
	}
	return netip.Addr{}
}

// quote returns the packet with which the stack sent a datagram, or a ping.
func (s *hostSocket) quote(datagram []byte) []byte {
	var message []byte
	transport := header.UDPProtocolNumber
	switch {
	case s.ident == nil:
		udp := make([]byte, header.UDPMinimumSize, header.UDPMinimumSize+len(datagram))
		header.UDP(udp).Encode(&header.UDPFields{
			SrcPort: s.from.Port(), DstPort: s.to.Port(), Length: uint16(header.UDPMinimumSize + len(datagram)),
		})
		message = append(udp, datagram...)
	case s.to.Addr().Is4():
		transport, message = header.ICMPv4ProtocolNumber, s.own(datagram)
	default:
		transport, message = header.ICMPv6ProtocolNumber, s.own(datagram)
	}
	src, dst := tcpip.AddrFromSlice(s.from.Addr().AsSlice()), tcpip.AddrFromSlice(s.to.Addr().AsSlice())
	if s.to.Addr().Is6() {
		b := make([]byte, header.IPv6MinimumSize)
		header.IPv6(b).Encode(&header.IPv6Fields{
			PayloadLength: uint16(len(message)), TransportProtocol: transport, HopLimit: 1, SrcAddr: src, DstAddr: dst,
		})
		return append(b, message...)
	}
	b := make([]byte, header.IPv4MinimumSize)
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b) + len(message)), TTL: 1, Protocol: uint8(transport), SrcAddr: src, DstAddr: dst,
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	return append(b, message...)
}

// own returns an ICMP message of the host's socket with the identifier that the program
// chose.
func (s *hostSocket) own(message []byte) []byte {
	b := append([]byte(nil), message...)
	copy(b[4:6], s.ident)
	return b
}
