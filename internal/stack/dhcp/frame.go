// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
)

const (
	serverPort = 67
	clientPort = 68

	protoUDP    = 17
	ipHeader    = 20
	udpHeader   = 8
	maxDatagram = 4096 // maximum datagram of a server: more than option 57 requests
)

var errNotOurs = errors.New("not a datagram for a DHCP client")

// datagram builds an IPv4 packet that contains UDP from port 68 to port 67.
func datagram(src, dst netip.Addr, payload []byte) []byte {
	b := make([]byte, ipHeader+udpHeader, ipHeader+udpHeader+len(payload))
	size := cap(b)
	b[0], b[1] = 0x45, 0xc0 // version and header length; TOS for network control, as in other clients
	binary.BigEndian.PutUint16(b[2:], uint16(size))
	b[8], b[9] = 64, protoUDP
	s, d := src.As4(), dst.As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[10:], ^sum(b[:ipHeader], 0))
	u := b[ipHeader:]
	binary.BigEndian.PutUint16(u[0:], clientPort)
	binary.BigEndian.PutUint16(u[2:], serverPort)
	binary.BigEndian.PutUint16(u[4:], uint16(udpHeader+len(payload)))
	b = append(b, payload...)
	check := ^sum(b[ipHeader:], pseudo(b))
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(b[ipHeader+6:], check)
	return b
}

// undatagram returns the payload of an IPv4 packet for a DHCP client, and its
// sender.
func undatagram(b []byte) (payload []byte, from netip.Addr, err error) {
	if len(b) < ipHeader || b[0]>>4 != 4 {
		return nil, from, errNotOurs
	}
	head, size := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	fragment := binary.BigEndian.Uint16(b[6:]) & 0x3fff // more fragments, or not the first
	if head < ipHeader || size < head+udpHeader || size > len(b) || b[9] != protoUDP || fragment != 0 {
		return nil, from, errNotOurs
	}
	if sum(b[:head], 0) != 0xffff {
		return nil, from, errNotOurs
	}
	u := b[head:size]
	n := int(binary.BigEndian.Uint16(u[4:]))
	if n < udpHeader || n > len(u) || binary.BigEndian.Uint16(u[2:]) != clientPort {
		return nil, from, errNotOurs
	}
	u = u[:n]
	// A sender on this machine may have left the checksum to hardware that
	// does not exist. Then the field contains only the sum of the pseudo
	// header.
	check := binary.BigEndian.Uint16(u[6:])
	p := pseudoOf(b[12:20], n)
	if check != 0 && sum(u, p) != 0xffff && check != fold(p) {
		return nil, from, errNotOurs
	}
	return u[udpHeader:], netip.AddrFrom4([4]byte(b[12:16])), nil
}

// pseudo returns the sum of the pseudo header of the UDP packet in b (RFC 768).
func pseudo(b []byte) uint32 { return pseudoOf(b[12:20], len(b)-ipHeader) }

func pseudoOf(addrs []byte, size int) uint32 {
	return uint32(sum(addrs, 0)) + protoUDP + uint32(size)
}

// sum returns the ones' complement sum of RFC 1071.
func sum(b []byte, start uint32) uint16 {
	s := uint64(start)
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func fold(s uint32) uint16 { return sum(nil, s) }

// arpPacket builds an ARP request. It is a probe if sender is not valid, and an
// announcement if sender is our own address (RFC 5227).
func arpPacket(mac net.HardwareAddr, sender, target netip.Addr) []byte {
	b := make([]byte, 28)
	copy(b, []byte{0, 1, 8, 0, 6, 4, 0, 1}) // Ethernet, IPv4, lengths, request (RFC 826)
	copy(b[8:14], mac)
	if sender.IsValid() {
		s := sender.As4()
		copy(b[14:18], s[:])
	}
	t := target.As4()
	copy(b[24:28], t[:])
	return b
}

// arpConflict reports whether a packet received during the probe of addr means
// that another host has the address or probes it too (RFC 5227, 2.1.1).
func arpConflict(b []byte, own net.HardwareAddr, addr netip.Addr) bool {
	if len(b) < 28 || [6]byte(b[:6]) != [6]byte{0, 1, 8, 0, 6, 4} || len(own) == 6 && [6]byte(b[8:14]) == [6]byte(own) {
		return false
	}
	op := binary.BigEndian.Uint16(b[6:])
	if op != 1 && op != 2 {
		return false
	}
	sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	return sender == addr || op == 1 && sender.IsUnspecified() && target == addr
}
