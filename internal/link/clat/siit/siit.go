// SPDX-License-Identifier: Apache-2.0

// Package siit translates between IPv4 and IPv6 packets without state (RFC 7915), as a
// CLAT of 464XLAT does (RFC 6877): one IPv4 address stands for one IPv6 address, and all
// other IPv4 addresses are embedded in addresses of a prefix (RFC 6052).
//
// Each message is a packet behind a struct virtio_net_hdr. A message with the data of many
// TCP segments is translated as a whole. The translator leaves TTL and hop limit alone,
// because the stack that forwards the IPv6 packets decrements them.
package siit

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// Headroom is the space that Translate needs before a message.
	Headroom = 64
	// maxPacket is the size of the largest IPv6 packet without a jumbo payload.
	maxPacket = header6 + 1<<16 - 1
	// BufferSize is the size of a buffer for Translate.
	BufferSize = Headroom + vnet + maxPacket

	vnet     = 10 // struct virtio_net_hdr, include/uapi/linux/virtio_net.h
	header4  = 20
	header6  = 40
	headerF  = 8 // IPv6 fragment header
	udpSize  = 8
	icmp     = 8 // header of ICMP echoes and errors
	tcpLeast = 20

	minMTU6 = 1280 // RFC 8200, 5
	minMTU4 = minMTU6 - (header6 - header4)
)

// Config describes the translation.
type Config struct {
	Own4   netip.Addr   // our IPv4 address
	Own6   netip.Addr   // the IPv6 address that stands for it
	Prefix netip.Prefix // contains the IPv6 addresses of all other IPv4 addresses
}

// dummy is the source of ICMP errors from IPv6 routers, which have no IPv4 address (RFC
// 7600, 4.8; RFC 6791 permits any address).
var dummy = netip.AddrFrom4([4]byte{192, 0, 0, 8})

// Reasons why packets are dropped, as the names of counters.
const (
	DropNoPrefix    = "clat_drop_no_prefix"   // no prefix is known
	DropSource      = "clat_drop_source"      // not from our address, or not from the prefix
	DropDestination = "clat_drop_destination" // the prefix must not carry this address
	DropProtocol    = "clat_drop_protocol"    // not TCP, UDP, or ICMP with an equivalent
	DropInvalid     = "clat_drop_invalid"     // not a valid packet
)

// reasons is the number of these.
const reasons = 5

var drops = [reasons]string{DropNoPrefix, DropSource, DropDestination, DropProtocol, DropInvalid}

// errDrop is the reason for dropping a packet.
type errDrop string

func (e errDrop) Error() string { return string(e) }

// errIgnore is about packets that need no translation, such as a neighbour solicitation.
var errIgnore = errors.New("not for translation")

// Translator translates packets. Translate may be called by one goroutine at a time; the
// other methods by any.
type Translator struct {
	config  atomic.Pointer[Config]
	id      uint32 // of the last IPv4 packet
	to6     atomic.Uint64
	to4     atomic.Uint64
	dropped [reasons]atomic.Uint64
	piece   [vnet + minMTU6]byte // a message that does not fit into its buffer's place
}

// Set starts, changes or stops (nil) the translation.
func (t *Translator) Set(c *Config) { t.config.Store(c) }

// Counts returns the counters.
func (t *Translator) Counts() map[string]uint64 {
	all := map[string]uint64{"clat_to_ipv6": t.to6.Load(), "clat_to_ipv4": t.to4.Load()}
	for i, name := range drops {
		all[name] = t.dropped[i].Load()
	}
	return all
}

// Translate translates the message b[Headroom:] and passes the results to send, which may
// use them until it returns. It overwrites b. For an IPv4 packet that cannot be translated,
// the result is an ICMP error to its sender.
func (t *Translator) Translate(b []byte, send func([]byte)) {
	var err error
	switch message := b[Headroom:]; {
	case len(message) < vnet+header4:
		err = errDrop(DropInvalid)
	case message[vnet]>>4 == 4:
		if err = t.outbound(b, send); err == nil {
			t.to6.Add(1)
		} else if reply := t.refuse(message, err); reply != nil {
			send(reply)
		}
	case message[vnet]>>4 == 6:
		if err = t.inbound(b, send); err == nil {
			t.to4.Add(1)
		}
	default:
		err = errDrop(DropInvalid)
	}
	if err == nil {
		return
	}
	for i, name := range drops {
		if errors.Is(err, errDrop(name)) {
			t.dropped[i].Add(1)
		}
	}
}

// offload is the part of a struct virtio_net_hdr that the translation changes.
type offload struct {
	partial bool // the transport checksum is the sum of the pseudo header
	gso     byte
	size    uint16 // of a segment
	start   int    // of the checksummed part
	offset  int    // of the checksum
}

func parseOffload(h []byte) offload {
	le := binary.NativeEndian
	return offload{
		partial: h[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0, gso: h[1], size: le.Uint16(h[4:]),
		start: int(le.Uint16(h[6:])), offset: int(le.Uint16(h[8:])),
	}
}

// put writes the header of a message whose transport header begins at start.
func (o offload) put(h []byte, start, transport int) {
	clear(h[:vnet])
	le := binary.NativeEndian
	if o.partial {
		h[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
		le.PutUint16(h[6:], uint16(start))
		le.PutUint16(h[8:], uint16(o.offset))
	}
	if o.gso != unix.VIRTIO_NET_HDR_GSO_NONE {
		h[1] = o.gso
		le.PutUint16(h[2:], uint16(start+transport))
		le.PutUint16(h[4:], o.size)
	}
}

// check returns an error if the offload does not fit the packet, whose transport header,
// of the size transport, is at start.
func (o offload) check(proto byte, start, transport, size int, tcpGSO byte) error {
	wrong := errDrop(DropInvalid)
	if o.partial && (o.start != start || proto == unix.IPPROTO_TCP && o.offset != 16 || proto == unix.IPPROTO_UDP && o.offset != 6 ||
		proto != unix.IPPROTO_TCP && proto != unix.IPPROTO_UDP) {
		return wrong
	}
	switch o.gso {
	case unix.VIRTIO_NET_HDR_GSO_NONE:
		return nil
	case tcpGSO, tcpGSO | unix.VIRTIO_NET_HDR_GSO_ECN:
		if proto != unix.IPPROTO_TCP {
			return wrong
		}
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
		if proto != unix.IPPROTO_UDP {
			return wrong
		}
	default:
		return wrong
	}
	if !o.partial || o.size == 0 || size <= start+transport {
		return wrong
	}
	return nil
}

// sum adds bytes to a ones' complement sum (RFC 1071). Only the last part of the data may
// have an odd length.
func sum(b []byte, s uint32) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
		s = s&0xffff + s>>16
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return fold(s)
}

func fold(s uint32) uint32 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return s
}

// change updates the checksum at b for data whose sum was before and is after (RFC 1624).
// A partial checksum is not complemented.
func change(b []byte, before, after uint32, partial bool) {
	c := uint32(binary.BigEndian.Uint16(b))
	if !partial {
		c = ^c & 0xffff
	}
	c = fold(c + ^before&0xffff + after)
	if !partial {
		c = ^c & 0xffff
	}
	binary.BigEndian.PutUint16(b, uint16(c))
}

// pseudo is the sum of the pseudo header's length and protocol.
func pseudo(proto byte, length int) uint32 {
	return fold(uint32(proto) + uint32(length)&0xffff + uint32(length)>>16)
}

// changeUDP is change for UDP, where zero means that there is no checksum.
func changeUDP(b []byte, before, after uint32, partial bool) {
	change(b, before, after, partial)
	if !partial && b[0] == 0 && b[1] == 0 {
		b[0], b[1] = 0xff, 0xff
	}
}

// putHeader4 writes an IPv4 header.
func putHeader4(b []byte, tos byte, length int, id, fragment uint16, ttl, proto byte, src, dst netip.Addr) {
	be := binary.BigEndian
	s, d := src.As4(), dst.As4()
	b[0], b[1] = 0x45, tos
	be.PutUint16(b[2:], uint16(length))
	be.PutUint16(b[4:], id)
	be.PutUint16(b[6:], fragment)
	b[8], b[9], b[10], b[11] = ttl, proto, 0, 0
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	be.PutUint16(b[10:], ^uint16(sum(b[:header4], 0)))
}

// putHeader6 writes an IPv6 header.
func putHeader6(b []byte, class byte, length int, next, hops byte, src, dst netip.Addr) {
	s, d := src.As16(), dst.As16()
	b[0], b[1], b[2], b[3] = 6<<4|class>>4, class<<4, 0, 0
	binary.BigEndian.PutUint16(b[4:], uint16(length))
	b[6], b[7] = next, hops
	copy(b[8:], s[:])
	copy(b[24:], d[:])
}
