// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"bytes"
	"crypto/rand"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// echo is an ICMP echo request to the gateway, and recognizes it and its answer.
// Every gateway answers these, WireGuard in a kernel too.
type echo struct {
	request []byte
	mark    [16]byte // the random payload
}

const echoTTL = 64

func newEcho(from, to netip.Addr) (*echo, error) {
	e := &echo{}
	if _, err := rand.Read(e.mark[:]); err != nil {
		return nil, err
	}
	id := uint16(e.mark[0])<<8 | uint16(e.mark[1])
	src, dst := tcpip.AddrFromSlice(from.AsSlice()), tcpip.AddrFromSlice(to.AsSlice())
	if from.Is4() {
		b := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize, header.IPv4MinimumSize+header.ICMPv4MinimumSize+len(e.mark))
		e.request = append(b, e.mark[:]...)
		ip := header.IPv4(e.request)
		ip.Encode(&header.IPv4Fields{
			TotalLength: uint16(len(ip)), TTL: echoTTL, Protocol: uint8(header.ICMPv4ProtocolNumber), SrcAddr: src, DstAddr: dst,
		})
		ip.SetChecksum(^ip.CalculateChecksum())
		icmp := header.ICMPv4(ip.Payload())
		icmp.SetType(header.ICMPv4Echo)
		icmp.SetIdent(id)
		icmp.SetChecksum(^checksum.Checksum(icmp, 0))
		return e, nil
	}
	b := make([]byte, header.IPv6MinimumSize+header.ICMPv6EchoMinimumSize, header.IPv6MinimumSize+header.ICMPv6EchoMinimumSize+len(e.mark))
	e.request = append(b, e.mark[:]...)
	ip := header.IPv6(e.request)
	ip.Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(ip) - header.IPv6MinimumSize), HopLimit: echoTTL,
		TransportProtocol: header.ICMPv6ProtocolNumber, SrcAddr: src, DstAddr: dst,
	})
	icmp := header.ICMPv6(ip.Payload())
	icmp.SetType(header.ICMPv6EchoRequest)
	icmp.SetIdent(id)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: src, Dst: dst}))
	return e, nil
}

// is reports whether a packet is the request or its answer.
func (e *echo) is(packet []byte) bool {
	return len(packet) == len(e.request) && bytes.HasSuffix(packet, e.mark[:])
}
