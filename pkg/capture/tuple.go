// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// tuple identifies a flow from the side of its socket.
type tuple struct {
	proto         uint8 // IPPROTO_TCP or IPPROTO_UDP
	local, remote netip.AddrPort
}

// tupleOf reads a packet's addresses and ports directly, without decoding the
// rest, because it is called for each packet of a capture. Later fragments have
// no ports. Protocols other than TCP and UDP are not supported.
func tupleOf(p *Packet, lt LinkType) (t tuple, ok bool) {
	b := p.Data
	if lt == LinkTypeEthernet {
		if b, ok = behindEthernet(b); !ok {
			return t, false
		}
	}
	if len(b) < 1 {
		return t, false
	}
	var src, dst netip.Addr
	switch b[0] >> 4 {
	case 4: // RFC 791, section 3.1
		head := int(b[0]&15) * 4
		if head < 20 || len(b) < head || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return t, false
		}
		t.proto = b[9]
		src, dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[head:]
	case 6: // RFC 8200, section 3; extension headers are not supported
		if len(b) < 40 {
			return t, false
		}
		t.proto = b[6]
		src, dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40:]
	}
	if t.proto != unix.IPPROTO_TCP && t.proto != unix.IPPROTO_UDP || len(b) < 4 {
		return t, false
	}
	from := netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
	to := netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
	if p.Dir == In {
		from, to = to, from
	}
	t.local, t.remote = from, to
	return t, true
}

// behindEthernet returns the payload of an Ethernet frame if the payload is IP.
func behindEthernet(b []byte) ([]byte, bool) {
	const tag = 4 // length of a VLAN tag, IEEE 802.1Q
	for at := 12; at+2 <= len(b); at += tag {
		switch binary.BigEndian.Uint16(b[at:]) {
		case unix.ETH_P_IP, unix.ETH_P_IPV6:
			return b[at+2:], true
		case unix.ETH_P_8021Q, unix.ETH_P_8021AD:
		default:
			return nil, false
		}
	}
	return nil, false
}
