// SPDX-License-Identifier: Apache-2.0

package siit

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// parse6 parses an IPv6 packet and its extension headers. A quoted packet is the part of a
// packet in an ICMPv6 error.
func parse6(b []byte, quoted bool) (packet, error) {
	be := binary.BigEndian
	invalid := errDrop(DropInvalid)
	if len(b) < header6 || b[0]>>4 != 6 {
		return packet{}, invalid
	}
	p := packet{class: b[0]<<4 | b[1]>>4, hops: b[7], proto: b[6], head: header6, dontFrag: true}
	total := header6 + int(be.Uint16(b[4:]))
	if !quoted && total > len(b) {
		return p, invalid
	}
	p.src, p.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	for {
		size, rest := 0, b[p.head:]
		switch p.proto {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			if len(rest) < 8 {
				return p, invalid
			}
			if size = int(rest[1])*8 + 8; p.proto == unix.IPPROTO_ROUTING && rest[3] != 0 { // segments left
				return p, errDrop(DropProtocol)
			}
		case unix.IPPROTO_FRAGMENT:
			if len(rest) < headerF || p.fragment {
				return p, invalid
			}
			v := be.Uint16(rest[2:])
			size, p.more, p.offset, p.id = headerF, v&1 != 0, int(v&^7), be.Uint32(rest[4:])
			p.fragment, p.dontFrag = p.more || p.offset > 0, false
		default:
			return p.finish6(b, total)
		}
		if p.proto = rest[0]; p.head+size > min(total, len(b)) {
			return p, invalid
		}
		if p.head += size; p.offset > 0 { // the other headers are in the first fragment
			return p.finish6(b, total)
		}
	}
}

// finish6 sets the payload behind the headers of an IPv6 packet.
func (p packet) finish6(b []byte, total int) (packet, error) {
	p.payloadSize = total - p.head
	if p.payloadSize < 0 || p.offset+p.payloadSize > 1<<16-1-header4 || p.more && p.payloadSize%8 != 0 {
		return p, errDrop(DropInvalid)
	}
	p.payload = b[p.head:min(total, len(b))]
	return p, nil
}

// inbound translates an IPv6 message.
func (t *Translator) inbound(b []byte, send func([]byte)) error {
	o := parseOffload(b[Headroom:])
	p, err := parse6(b[Headroom+vnet:], false)
	if err != nil {
		return err
	}
	if p.dst.IsMulticast() || p.dst.IsLinkLocalUnicast() {
		return errIgnore // neighbour discovery on our own device
	}
	c := t.config.Load()
	if c == nil {
		return errDrop(DropNoPrefix)
	}
	if p.dst != c.Own6 {
		return errDrop(DropDestination)
	}
	from, known := Extract(c.Prefix, p.src)
	if known && !carries(c.Prefix, from) {
		return errDrop(DropSource)
	}
	if !known { // a router may report an error
		if p.proto != unix.IPPROTO_ICMPV6 || len(p.payload) == 0 || p.payload[0] >= 128 {
			return errDrop(DropSource)
		}
		from = dummy
	}
	transport, err := p.transport(o, unix.IPPROTO_ICMPV6, unix.VIRTIO_NET_HDR_GSO_TCPV6)
	if err != nil {
		return err
	}
	before, after := p.addresses(), sum(c.Own4.AsSlice(), sum(from.AsSlice(), 0))
	proto := p.proto
	switch {
	case p.proto == unix.IPPROTO_ICMPV6:
		proto = unix.IPPROTO_ICMP
		if p.payload[0] < 128 {
			return t.error4(&p, c, from, send)
		}
		if _, echo := echo4[p.payload[0]]; !echo {
			return errDrop(DropProtocol)
		}
		toEcho4(p.payload, before, len(p.payload))
	case p.offset > 0:
	case p.proto == unix.IPPROTO_TCP:
		change(p.payload[16:], before, after, o.partial)
	case p.payload[6] == 0 && p.payload[7] == 0 && !o.partial:
		return errDrop(DropInvalid) // IPv6 requires a checksum
	default:
		changeUDP(p.payload[6:], before, after, o.partial)
	}
	if o.gso&^unix.VIRTIO_NET_HDR_GSO_ECN == unix.VIRTIO_NET_HDR_GSO_TCPV6 {
		o.gso = o.gso&unix.VIRTIO_NET_HDR_GSO_ECN | unix.VIRTIO_NET_HDR_GSO_TCPV4
	}
	at, size := Headroom+vnet+p.head-header4, header4+len(p.payload)
	id, flags := uint16(p.id), uint16(p.offset/8)
	switch {
	case p.fragment && p.more:
		flags |= 0x2000
	case p.fragment:
	case p.dontFrag && (size > minMTU4 || o.gso != 0):
		flags = 0x4000
	default:
		t.id++
		id = uint16(t.id)
	}
	putHeader4(b[at:], p.class, size, id, flags, p.hops, proto, from, c.Own4)
	o.put(b[at-vnet:], header4, transport)
	send(b[at-vnet : at+size])
	return nil
}

// toEcho4 translates an ICMPv6 echo.
func toEcho4(b []byte, addresses uint32, size int) {
	before := fold(sum(b[:2], addresses) + pseudo(unix.IPPROTO_ICMPV6, size))
	b[0] = echo4[b[0]]
	change(b[2:], before, sum(b[:2], 0), false)
}

// maxError is the size of an ICMP error (RFC 1812, 4.3.2.3).
const maxError = 576

// error4 translates an ICMPv6 error and the packet in it, which must be ours.
func (t *Translator) error4(p *packet, c *Config, from netip.Addr, send func([]byte)) error {
	m := p.payload
	typ, code, value, ok := errorTo4(m)
	if !ok {
		return errDrop(DropProtocol)
	}
	if sum(m, fold(p.addresses()+pseudo(unix.IPPROTO_ICMPV6, len(m)))) != 0xffff {
		return errDrop(DropInvalid)
	}
	quote := m[icmp:]
	if n := int(m[4]) * 8; (m[0] == 1 || m[0] == 3) && n > 0 && n < len(quote) { // extensions follow (RFC 4884)
		quote = quote[:n]
	}
	q, err := parse6(quote, true)
	if err != nil {
		return err
	}
	to, known := Extract(c.Prefix, q.dst)
	if q.src != c.Own6 || !known {
		return errDrop(DropSource)
	}
	b := t.piece[:]
	clear(b[:vnet])
	at := vnet + header4
	b[at], b[at+1], b[at+2], b[at+3] = typ, code, 0, 0
	binary.BigEndian.PutUint32(b[at+4:], value)
	n := at + icmp
	proto := q.proto
	if proto == unix.IPPROTO_ICMPV6 {
		proto = unix.IPPROTO_ICMP
	}
	if q.offset == 0 {
		q.quoted(sum(to.AsSlice(), sum(c.Own4.AsSlice(), 0)))
	}
	flags := uint16(q.offset / 8)
	switch {
	case q.more:
		flags |= 0x2000
	case q.dontFrag:
		flags = 0x4000
	}
	putHeader4(b[n:], q.class, header4+q.payloadSize, uint16(q.id), flags, q.hops, proto, c.Own4, to)
	n += header4
	n += copy(b[n:vnet+maxError], q.payload)
	binary.BigEndian.PutUint16(b[at+2:], ^uint16(sum(b[at:n], 0)))
	t.id++
	putHeader4(b[vnet:], p.class, n-vnet, uint16(t.id), 0, p.hops, unix.IPPROTO_ICMP, from, c.Own4)
	send(b[:n])
	return nil
}

// errorTo4 translates type, code and the fourth to seventh byte of an ICMPv6 error (RFC
// 7915, 5.2).
func errorTo4(m []byte) (typ, code byte, value uint32, ok bool) {
	given := binary.BigEndian.Uint32(m[4:])
	switch m[0] {
	case 1: // destination unreachable
		switch m[1] {
		case 0, 2, 3: // no route, beyond scope, address unreachable
			return 3, 1, 0, true
		case 1: // prohibited
			return 3, 10, 0, true
		case 4: // port
			return 3, 3, 0, true
		}
	case 2: // packet too big
		mtu := min(max(given, minMTU6), 1<<16-1)
		return 3, 4, mtu - (header6 - header4), true
	case 3: // time exceeded
		return 11, m[1], 0, m[1] <= 1
	case 4: // parameter problem
		if m[1] == 1 { // unknown next header
			return 3, 2, 0, true
		}
		if at, ok := place4(given); m[1] == 0 && ok {
			return 12, 0, uint32(at) << 24, true
		}
	}
	return 0, 0, 0, false
}

// place4 returns the place of a field of an IPv6 header in an IPv4 header.
func place4(at uint32) (byte, bool) {
	switch {
	case at <= 1: // version, traffic class
		return byte(at), true
	case at == 4 || at == 5: // length
		return 2, true
	case at == 6: // next header
		return 9, true
	case at == 7: // hop limit
		return 8, true
	case at >= 8 && at < 24:
		return 12, true
	case at >= 24 && at < 40:
		return 16, true
	}
	return 0, false
}

// refuse returns an ICMP error for an IPv4 message that cannot be translated, so that its
// program does not wait; nil if none may be sent (RFC 1122, 3.2.2).
func (t *Translator) refuse(message []byte, why error) []byte {
	code := map[error]byte{errDrop(DropNoPrefix): 0, errDrop(DropDestination): 13, errDrop(DropProtocol): 2}
	what, ok := code[why]
	if !ok {
		return nil
	}
	packet := message[vnet:]
	p, err := parse4(packet, false)
	if err != nil || p.offset > 0 || p.dst.IsMulticast() || !p.src.IsGlobalUnicast() || p.dst.As4()[0] >= 240 ||
		p.proto == unix.IPPROTO_ICMP && (len(p.payload) == 0 || p.payload[0] != 8) {
		return nil
	}
	b := t.piece[:]
	clear(b[:vnet])
	at := vnet + header4
	clear(b[at : at+icmp])
	b[at], b[at+1] = 3, what
	n := at + icmp
	n += copy(b[n:vnet+maxError], packet[:p.head+len(p.payload)])
	binary.BigEndian.PutUint16(b[at+2:], ^uint16(sum(b[at:n], 0)))
	t.id++
	putHeader4(b[vnet:], 0, n-vnet, uint16(t.id), 0, 64, unix.IPPROTO_ICMP, dummy, p.src)
	return b[:n]
}
