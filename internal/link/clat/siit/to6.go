// SPDX-License-Identifier: Apache-2.0

package siit

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// packet is a parsed IPv4 or IPv6 packet.
type packet struct {
	class       byte // TOS or traffic class
	hops        byte
	proto       byte // of the payload
	dontFrag    bool
	fragment    bool
	more        bool
	offset      int // of a fragment
	id          uint32
	src, dst    netip.Addr
	head        int // the size of all IP headers
	payload     []byte
	payloadSize int // as the headers say; a quoted packet may be truncated
}

// parse4 parses an IPv4 packet. A quoted packet is the part of a packet in an ICMP error.
func parse4(b []byte, quoted bool) (packet, error) {
	be := binary.BigEndian
	if len(b) < header4 || b[0]>>4 != 4 {
		return packet{}, errDrop(DropInvalid)
	}
	p := packet{class: b[1], hops: b[8], proto: b[9], head: int(b[0]&0xf) * 4, id: uint32(be.Uint16(b[4:]))}
	total, flags := int(be.Uint16(b[2:])), be.Uint16(b[6:])
	if p.head < header4 || total < p.head || p.head > len(b) || !quoted && total > len(b) {
		return p, errDrop(DropInvalid)
	}
	p.dontFrag, p.more, p.offset = flags&0x4000 != 0, flags&0x2000 != 0, int(flags&0x1fff)*8
	p.fragment = p.more || p.offset > 0
	p.src, p.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.payloadSize = total - p.head
	if sourceRouted(b[header4:p.head]) || p.offset+p.payloadSize > 1<<16-1 || p.more && p.payloadSize%8 != 0 {
		return p, errDrop(DropInvalid)
	}
	p.payload = b[p.head:min(total, len(b))]
	return p, nil
}

// sourceRouted reports whether IPv4 options have a source route, or are invalid. Other
// options are ignored (RFC 7915, 4.1).
func sourceRouted(options []byte) bool {
	for len(options) > 0 {
		switch kind := options[0]; {
		case kind == 0: // the end
			return false
		case kind == 1: // no operation
			options = options[1:]
			continue
		case len(options) < 2 || options[1] < 2 || int(options[1]) > len(options), kind == 131, kind == 137: // LSRR, SSRR
			return true
		}
		options = options[options[1]:]
	}
	return false
}

// outbound translates an IPv4 message.
func (t *Translator) outbound(b []byte, send func([]byte)) error {
	c := t.config.Load()
	if c == nil {
		return errDrop(DropNoPrefix)
	}
	o := parseOffload(b[Headroom:])
	p, err := parse4(b[Headroom+vnet:], false)
	if err != nil {
		return err
	}
	if p.src != c.Own4 {
		return errDrop(DropSource)
	}
	if !carries(c.Prefix, p.dst) {
		return errDrop(DropDestination)
	}
	from, to := p.addresses(), Embed(c.Prefix, p.dst)
	after := sum(to.AsSlice(), sum(c.Own6.AsSlice(), 0))
	transport, err := p.transport(o, unix.IPPROTO_ICMP, unix.VIRTIO_NET_HDR_GSO_TCPV4)
	if err != nil {
		return err
	}
	next := p.proto
	switch {
	case p.proto == unix.IPPROTO_ICMP:
		next = unix.IPPROTO_ICMPV6
		if _, echo := echo6[p.payload[0]]; !echo {
			return t.error6(&p, c, to, send)
		}
		toEcho6(p.payload, after, len(p.payload))
	case p.offset > 0:
	case p.proto == unix.IPPROTO_TCP:
		change(p.payload[16:], from, after, o.partial)
	case p.payload[6] == 0 && p.payload[7] == 0 && !o.partial:
		if p.fragment {
			return errDrop(DropInvalid) // the sum of all fragments is unknown
		}
		binary.BigEndian.PutUint16(p.payload[6:], uint16(fold(after+pseudo(p.proto, len(p.payload)))))
		complete(p.payload, 6)
	default:
		changeUDP(p.payload[6:], from, after, o.partial)
	}
	if o.gso&^unix.VIRTIO_NET_HDR_GSO_ECN == unix.VIRTIO_NET_HDR_GSO_TCPV4 {
		o.gso = o.gso&unix.VIRTIO_NET_HDR_GSO_ECN | unix.VIRTIO_NET_HDR_GSO_TCPV6
	}
	if !p.fragment && (p.dontFrag || o.gso != 0 || len(p.payload) <= minMTU6-header6) {
		at := Headroom + vnet + p.head - header6
		putHeader6(b[at:], p.class, len(p.payload), next, p.hops, c.Own6, to)
		o.put(b[at-vnet:], header6, transport)
		send(b[at-vnet : at+header6+len(p.payload)])
		return nil
	}
	if o.partial {
		complete(p.payload, o.offset)
	}
	t.split(&p, next, c.Own6, to, send)
	return nil
}

// transport checks the transport header and its offload, and returns the header's size.
func (p *packet) transport(o offload, icmpProto, tcpGSO byte) (int, error) {
	switch {
	case p.proto != unix.IPPROTO_TCP && p.proto != unix.IPPROTO_UDP && p.proto != icmpProto:
		return 0, errDrop(DropProtocol)
	case p.proto == icmpProto && p.fragment: // its sum covers the pseudo header of the whole (RFC 7915, 1.2)
		return 0, errDrop(DropProtocol)
	case p.fragment && (o.partial || o.gso != unix.VIRTIO_NET_HDR_GSO_NONE):
		return 0, errDrop(DropInvalid)
	case p.offset > 0:
		return 0, nil
	}
	n := icmp
	switch p.proto {
	case unix.IPPROTO_TCP:
		if len(p.payload) < tcpLeast {
			return 0, errDrop(DropInvalid)
		}
		n = int(p.payload[12]>>4) * 4
		if n < tcpLeast || n > len(p.payload) && !p.fragment {
			return 0, errDrop(DropInvalid)
		}
	case unix.IPPROTO_UDP:
		n = udpSize
		whole := !p.fragment && o.gso == unix.VIRTIO_NET_HDR_GSO_NONE
		if len(p.payload) < n || whole && int(binary.BigEndian.Uint16(p.payload[4:])) != len(p.payload) {
			return 0, errDrop(DropInvalid)
		}
	default:
		if len(p.payload) < n {
			return 0, errDrop(DropInvalid)
		}
	}
	return n, o.check(p.proto, p.head, n, p.head+len(p.payload), tcpGSO)
}

// addresses returns the sum of the addresses.
func (p *packet) addresses() uint32 { return sum(p.dst.AsSlice(), sum(p.src.AsSlice(), 0)) }

// complete replaces a partial checksum by that of the data.
func complete(payload []byte, offset int) {
	c := ^uint16(sum(payload, 0))
	if c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(payload[offset:], c)
}

// split sends a packet as fragments that fit through each IPv6 network (RFC 7915, 4).
func (t *Translator) split(p *packet, next byte, src, dst netip.Addr, send func([]byte)) {
	const most = (minMTU6 - header6 - headerF) &^ 7
	b := t.piece[:]
	clear(b[:vnet])
	for at := 0; at < len(p.payload) || at == 0; at += most {
		data := p.payload[at:min(at+most, len(p.payload))]
		putHeader6(b[vnet:], p.class, headerF+len(data), unix.IPPROTO_FRAGMENT, p.hops, src, dst)
		putFragment(b[vnet+header6:], next, p.offset+at, p.more || at+most < len(p.payload), p.id)
		n := vnet + header6 + headerF
		n += copy(b[n:], data)
		send(b[:n])
	}
}

func putFragment(b []byte, next byte, offset int, more bool, id uint32) {
	b[0], b[1] = next, 0
	v := uint16(offset)
	if more {
		v |= 1
	}
	binary.BigEndian.PutUint16(b[2:], v)
	binary.BigEndian.PutUint32(b[4:], id)
}

// echo6 and echo4 translate the types of ICMP echoes.
var (
	echo6 = map[byte]byte{8: 128, 0: 129}
	echo4 = map[byte]byte{128: 8, 129: 0}
)

// toEcho6 translates an ICMP echo. ICMPv6's checksum covers the pseudo header.
func toEcho6(b []byte, addresses uint32, size int) {
	before := sum(b[:2], 0)
	b[0] = echo6[b[0]]
	change(b[2:], before, fold(sum(b[:2], addresses)+pseudo(unix.IPPROTO_ICMPV6, size)), false)
}

// error6 translates an ICMP error and the packet in it.
func (t *Translator) error6(p *packet, c *Config, to netip.Addr, send func([]byte)) error {
	m := p.payload
	typ, code, value, ok := errorTo6(m)
	if !ok {
		return errDrop(DropProtocol)
	}
	if sum(m, 0) != 0xffff {
		return errDrop(DropInvalid)
	}
	quote := m[icmp:]
	if n := int(m[5]) * 4; m[0] != 12 && n > 0 && n < len(quote) { // extensions follow (RFC 4884)
		quote = quote[:n]
	}
	q, err := parse4(quote, true)
	if err != nil {
		return err
	}
	if q.dst != c.Own4 || !carries(c.Prefix, q.src) {
		return errDrop(DropSource)
	}
	b := t.piece[:]
	clear(b[:vnet])
	at := vnet + header6
	clear(b[at : at+icmp])
	b[at], b[at+1] = typ, code
	binary.BigEndian.PutUint32(b[at+4:], value)
	n := at + icmp
	src := Embed(c.Prefix, q.src)
	next, size := q.proto, q.payloadSize
	if next == unix.IPPROTO_ICMP {
		next = unix.IPPROTO_ICMPV6
	}
	if q.offset == 0 {
		q.quoted(sum(c.Own6.AsSlice(), sum(src.AsSlice(), 0)))
	}
	first := next
	if q.fragment {
		first, size = unix.IPPROTO_FRAGMENT, size+headerF
	}
	putHeader6(b[n:], q.class, size, first, q.hops, src, c.Own6)
	n += header6
	if q.fragment {
		putFragment(b[n:], next, q.offset, q.more, q.id)
		n += headerF
	}
	n += copy(b[n:], q.payload)
	length := n - at
	partial := sum(to.AsSlice(), sum(c.Own6.AsSlice(), pseudo(unix.IPPROTO_ICMPV6, length)))
	binary.BigEndian.PutUint16(b[at+2:], ^uint16(sum(b[at:n], partial)))
	putHeader6(b[vnet:], p.class, length, unix.IPPROTO_ICMPV6, p.hops, c.Own6, to)
	send(b[:n])
	return nil
}

// quoted updates the checksum in the quoted part of a packet, as far as it is there. after
// is the sum of the translated addresses.
func (p *packet) quoted(after uint32) {
	b, before := p.payload, p.addresses()
	switch {
	case p.proto == unix.IPPROTO_TCP && len(b) >= 18:
		change(b[16:], before, after, false)
	case p.proto == unix.IPPROTO_UDP && len(b) >= udpSize && (b[6] != 0 || b[7] != 0):
		changeUDP(b[6:], before, after, false)
	case p.proto == unix.IPPROTO_ICMP && len(b) >= 4:
		if _, ok := echo6[b[0]]; ok {
			toEcho6(b, after, p.payloadSize)
		}
	case p.proto == unix.IPPROTO_ICMPV6 && len(b) >= 4:
		if _, ok := echo4[b[0]]; ok {
			toEcho4(b, before, p.payloadSize)
		}
	}
}

// errorTo6 translates type, code and the fourth to seventh byte of an ICMP error (RFC
// 7915, 4.2).
func errorTo6(m []byte) (typ, code byte, value uint32, ok bool) {
	switch m[0] {
	case 3: // destination unreachable
		switch m[1] {
		case 0, 1, 5, 6, 7, 8, 11, 12:
			return 1, 0, 0, true // no route
		case 2: // protocol
			return 4, 1, 6, true
		case 3: // port
			return 1, 4, 0, true
		case 4: // fragmentation needed
			mtu := uint32(binary.BigEndian.Uint16(m[6:]))
			return 2, 0, max(mtu+header6-header4, minMTU6), true
		case 9, 10, 13, 15:
			return 1, 1, 0, true // prohibited
		}
	case 11: // time exceeded
		return 3, m[1], 0, m[1] <= 1
	case 12: // parameter problem
		// The places of the fields of an IPv4 header in an IPv6 header.
		places := [header4]int{0, 1, 4, 4, -1, -1, -1, -1, 7, 6, -1, -1, 8, 8, 8, 8, 24, 24, 24, 24}
		if at := int(m[4]); m[1] != 1 && at < len(places) && places[at] >= 0 {
			return 4, 0, uint32(places[at]), true
		}
	}
	return 0, 0, 0, false
}
