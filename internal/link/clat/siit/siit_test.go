// SPDX-License-Identifier: Apache-2.0

package siit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

// here is a host with the address 1.1.1.1, and there one with 8.8.8.8, on the other side of an
// IPv6 network.
var (
	here  = Config{Own4: addr("1.1.1.1"), Own6: addr("64:ff9b::101:101"), Prefix: prefix("2001:db8::/32")}
	there = Config{Own4: addr("8.8.8.8"), Own6: addr("2001:db8:808:808::"), Prefix: WellKnown}
)

// translate returns the results of a message.
func translate(c *Config, message []byte) (out [][]byte, dropped string) {
	var t Translator
	t.Set(c)
	b := append(make([]byte, Headroom), message...)
	t.Translate(b, func(m []byte) { out = append(out, bytes.Clone(m)) })
	for name, n := range t.Counts() {
		if n > 0 && name != "clat_to_ipv4" && name != "clat_to_ipv6" {
			dropped = name
		}
	}
	return out, dropped
}

// ip4 returns a message with an IPv4 packet of here.
func ip4(proto byte, fragment uint16, to string, payload []byte) []byte {
	b := make([]byte, vnet+header4, vnet+header4+len(payload))
	putHeader4(b[vnet:], 0x2e, header4+len(payload), 0x1234, fragment, 61, proto, here.Own4, addr(to))
	return append(b, payload...)
}

const dontFragment = 0x4000

// withSum sets the checksum of a payload with its pseudo header.
func withSum(payload []byte, at int, proto byte, src, dst netip.Addr) []byte {
	binary.BigEndian.PutUint16(payload[at:], 0)
	s := pseudo(proto, len(payload))
	if proto == unix.IPPROTO_ICMP {
		s = 0
	} else {
		s = sum(dst.AsSlice(), sum(src.AsSlice(), s))
	}
	binary.BigEndian.PutUint16(payload[at:], ^uint16(sum(payload, s)))
	return payload
}

func tcp(size int) []byte {
	b := make([]byte, 20+size)
	for i := range b {
		b[i] = byte(i)
	}
	b[12] = 5 << 4
	return withSum(b, 16, unix.IPPROTO_TCP, here.Own4, there.Own4)
}

func udp(size int) []byte {
	b := make([]byte, udpSize+size)
	for i := range b {
		b[i] = byte(i + 1)
	}
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return withSum(b, 6, unix.IPPROTO_UDP, here.Own4, there.Own4)
}

func echo(size int) []byte {
	b := make([]byte, icmp+size)
	b[0], b[5], b[7] = 8, 77, 1
	return withSum(b, 2, unix.IPPROTO_ICMP, here.Own4, there.Own4)
}

// valid returns an error if lengths or checksums of a message are wrong.
func valid(m []byte) error {
	o := parseOffload(m)
	b := m[vnet:]
	p, err := parse4(b, false)
	s := uint32(0)
	if b[0]>>4 == 6 {
		p, err = parse6(b, false)
	} else if sum(b[:p.head], 0) != 0xffff {
		return fmt.Errorf("header checksum: %x", b[:p.head])
	}
	if err != nil {
		return err
	}
	if p.head+len(p.payload) != len(b) {
		return fmt.Errorf("%d bytes, but the header says %d", len(b), p.head+len(p.payload))
	}
	if p.proto != unix.IPPROTO_ICMP {
		s = fold(p.addresses() + pseudo(p.proto, len(p.payload)))
	}
	switch {
	case p.fragment:
	case o.partial:
		if got := binary.BigEndian.Uint16(p.payload[o.offset:]); uint32(got) != s {
			return fmt.Errorf("partial checksum %x, expected %x", got, s)
		}
	case sum(p.payload, s) != 0xffff:
		return fmt.Errorf("checksum of protocol %d is wrong", p.proto)
	}
	return nil
}

// TestRoundTrip checks that a packet arrives unchanged on the other side of an IPv6 network.
func TestRoundTrip(t *testing.T) {
	options := ip4(unix.IPPROTO_TCP, dontFragment, "8.8.8.8", append([]byte{1, 1, 1, 0}, tcp(5)...))
	options[vnet] = 0x46
	refreshHeader(options)
	for name, c := range map[string]struct {
		message []byte
		changed bool // the fields that only fragments have, or options
	}{
		"tcp":     {message: ip4(unix.IPPROTO_TCP, dontFragment, "8.8.8.8", tcp(1400))},
		"odd":     {message: ip4(unix.IPPROTO_TCP, dontFragment, "8.8.8.8", tcp(1399))},
		"udp":     {message: ip4(unix.IPPROTO_UDP, dontFragment, "8.8.8.8", udp(1400))},
		"echo":    {message: ip4(unix.IPPROTO_ICMP, dontFragment, "8.8.8.8", echo(1300))},
		"small":   {message: ip4(unix.IPPROTO_UDP, 0, "8.8.8.8", udp(3)), changed: true},
		"options": {message: options, changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			six, _ := translate(&here, c.message)
			if len(six) != 1 || valid(six[0]) != nil {
				t.Fatalf("IPv6: %d packets: %v", len(six), valid(six[0]))
			}
			p, _ := parse6(six[0][vnet:], false)
			if p.src != here.Own6 || p.dst != there.Own6 || p.class != 0x2e || p.hops != 61 {
				t.Errorf("IPv6 header: %+v", p)
			}
			four, dropped := translate(&there, six[0])
			if len(four) != 1 || valid(four[0]) != nil {
				t.Fatalf("IPv4: %d packets, %s", len(four), dropped)
			}
			if before, _ := parse4(c.message[vnet:], false); !bytes.HasSuffix(four[0], before.payload) {
				t.Error("the payload has changed")
			}
			if want := bytes.Clone(c.message); !c.changed {
				want[vnet+4], want[vnet+5] = 0, 0 // the ID has no meaning without fragments
				refreshHeader(want)
				if !bytes.Equal(four[0], want) {
					t.Errorf("got  %x\nwant %x", four[0], want)
				}
			}
		})
	}
}

// refreshHeader corrects the checksum of an IPv4 header.
func refreshHeader(m []byte) {
	b := m[vnet:]
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum(b[:int(b[0]&0xf)*4], 0)))
}

// TestOffload checks messages with the data of many segments, whose checksum is that of the
// pseudo header.
func TestOffload(t *testing.T) {
	for name, c := range map[string]struct {
		kind    byte
		payload []byte
		at      int
		kind6   byte
	}{
		"tcp": {unix.VIRTIO_NET_HDR_GSO_TCPV4 | unix.VIRTIO_NET_HDR_GSO_ECN, tcp(60000), 16, unix.VIRTIO_NET_HDR_GSO_TCPV6 | unix.VIRTIO_NET_HDR_GSO_ECN},
		"udp": {unix.VIRTIO_NET_HDR_GSO_UDP_L4, udp(30000), 6, unix.VIRTIO_NET_HDR_GSO_UDP_L4},
		"one": {unix.VIRTIO_NET_HDR_GSO_NONE, udp(100), 6, unix.VIRTIO_NET_HDR_GSO_NONE},
	} {
		t.Run(name, func(t *testing.T) {
			proto := byte(unix.IPPROTO_TCP)
			if c.at == 6 {
				proto = unix.IPPROTO_UDP
			}
			m := ip4(proto, dontFragment, "8.8.8.8", c.payload)
			o := offload{partial: true, gso: c.kind, size: 1400, start: header4, offset: c.at}
			transport := 20
			if c.at == 6 {
				transport = udpSize
			}
			o.put(m, header4, transport)
			s := sum(there.Own4.AsSlice(), sum(here.Own4.AsSlice(), pseudo(proto, len(c.payload))))
			binary.BigEndian.PutUint16(m[vnet+header4+c.at:], uint16(s))
			six, dropped := translate(&here, bytes.Clone(m))
			if len(six) != 1 || valid(six[0]) != nil {
				t.Fatalf("IPv6: %d packets, %s", len(six), dropped)
			}
			if got := parseOffload(six[0]); got.gso != c.kind6 || got.start != header6 || c.kind != 0 && got.size != 1400 {
				t.Errorf("virtio header: %+v", got)
			}
			four, _ := translate(&there, six[0])
			if len(four) != 1 || valid(four[0]) != nil || !bytes.Equal(four[0][:vnet], m[:vnet]) {
				t.Errorf("IPv4: %d packets", len(four))
			}
		})
	}
}

// TestFragments checks both directions. Without "don't fragment", each IPv6 packet must fit
// into the smallest MTU.
func TestFragments(t *testing.T) {
	whole := udp(4000)
	var got []byte
	more := true
	for at := 0; at < len(whole); at += 1456 {
		data := whole[at:min(at+1456, len(whole))]
		flags := uint16(at / 8)
		if at+1456 < len(whole) {
			flags |= 0x2000
		}
		six, dropped := translate(&here, ip4(unix.IPPROTO_UDP, flags, "8.8.8.8", data))
		if len(six) != 2 && len(data) > 1232 || len(six) == 0 {
			t.Fatalf("at %d: %d packets, %s", at, len(six), dropped)
		}
		for _, m := range six {
			if len(m)-vnet > minMTU6 {
				t.Errorf("a packet of %d bytes", len(m)-vnet)
			}
			four, _ := translate(&there, m)
			p, err := parse4(four[0][vnet:], false)
			if err != nil || p.offset != len(got) || p.id != 0x1234 || p.dontFrag {
				t.Errorf("fragment: %+v, %v", p, err)
			}
			got, more = append(got, p.payload...), p.more
		}
	}
	if !bytes.Equal(got, whole) || more {
		t.Error("the fragments differ from the datagram")
	}
	// The checksum of a whole datagram without "don't fragment" may be left to the device.
	m := ip4(unix.IPPROTO_UDP, 0, "8.8.8.8", udp(1400))
	offload{partial: true, offset: 6}.put(m, header4, udpSize)
	s := sum(there.Own4.AsSlice(), sum(here.Own4.AsSlice(), pseudo(unix.IPPROTO_UDP, udpSize+1400)))
	binary.BigEndian.PutUint16(m[vnet+header4+6:], uint16(s))
	six, _ := translate(&here, m)
	if got = nil; len(six) == 2 {
		for _, m := range six {
			four, _ := translate(&there, m)
			got = append(got, four[0][vnet+header4:]...)
		}
	}
	if !bytes.Equal(got, udp(1400)) {
		t.Errorf("%d fragments without the right checksum", len(six))
	}
}

// TestNoUDPChecksum checks that a datagram without checksum gets one.
func TestNoUDPChecksum(t *testing.T) {
	b := udp(99)
	b[6], b[7] = 0, 0
	if six, _ := translate(&here, ip4(unix.IPPROTO_UDP, dontFragment, "8.8.8.8", b)); len(six) != 1 || valid(six[0]) != nil {
		t.Errorf("%d packets: %v", len(six), valid(six[0]))
	}
	if six, _ := translate(&here, ip4(unix.IPPROTO_UDP, 0x2000, "8.8.8.8", b[:104])); len(six) != 0 {
		t.Error("a fragment passes")
	}
}

// error6 returns a message with an ICMPv6 error about a packet of here.
func error6(from netip.Addr, typ, code byte, value uint32, quote []byte) []byte {
	b := append([]byte{typ, code, 0, 0}, binary.BigEndian.AppendUint32(nil, value)...)
	b = withSum(append(b, quote...), 2, unix.IPPROTO_ICMPV6, from, here.Own6)
	m := make([]byte, vnet+header6)
	putHeader6(m[vnet:], 0, len(b), unix.IPPROTO_ICMPV6, 55, from, here.Own6)
	return append(m, b...)
}

// TestErrors checks ICMP errors and the packets in them.
func TestErrors(t *testing.T) {
	original := ip4(unix.IPPROTO_UDP, dontFragment, "8.8.8.8", udp(1400))
	six, _ := translate(&here, bytes.Clone(original))
	router := addr("fd00::1")
	for _, c := range []struct {
		typ, code byte
		value     uint32
		want      string // type, code and the fourth to seventh byte
	}{
		{1, 0, 0, "030100000000"}, {1, 1, 0, "030a00000000"}, {1, 4, 0, "030300000000"},
		{2, 0, 1400, "030400000564"}, {2, 0, 600, "0304000004ec"}, {2, 0, 1 << 20, "03040000ffeb"},
		{3, 0, 0, "0b0000000000"}, {4, 1, 6, "030200000000"}, {4, 0, 7, "0c0008000000"},
	} {
		four, dropped := translate(&here, error6(router, c.typ, c.code, c.value, six[0][vnet:][:200]))
		if len(four) != 1 || valid(four[0]) != nil {
			t.Errorf("%d/%d: %d packets, %s", c.typ, c.code, len(four), dropped)
			continue
		}
		p, _ := parse4(four[0][vnet:], false)
		if got := hex.EncodeToString(append(p.payload[:2:2], p.payload[4:8]...)); got != c.want || p.src != dummy {
			t.Errorf("%d/%d: %s from %s, expected %s", c.typ, c.code, got, p.src, c.want)
		}
		want := bytes.Clone(original[vnet:][:len(p.payload)-icmp])
		want[4], want[5], want[10], want[11] = 0, 0, p.payload[icmp+10], p.payload[icmp+11]
		if !bytes.Equal(p.payload[icmp:], want) {
			t.Errorf("%d/%d: quoted\n%x, expected\n%x", c.typ, c.code, p.payload[icmp:], want)
		}
	}
	if four, dropped := translate(&here, error6(router, 1, 4, 0, error6(router, 1, 4, 0, nil)[vnet:])); len(four) != 0 || dropped != DropSource {
		t.Errorf("an error about another host's packet passes: %s", dropped)
	}
	bad := error6(router, 1, 4, 0, six[0][vnet:][:200])
	bad[len(bad)-1]++
	if four, dropped := translate(&here, bad); len(four) != 0 || dropped != DropInvalid {
		t.Errorf("an error with a wrong checksum passes: %s", dropped)
	}

	// The stack's own error about a packet from there.
	quote := make([]byte, header4+8)
	putHeader4(quote, 0, header4+50, 7, dontFragment, 60, unix.IPPROTO_UDP, there.Own4, here.Own4)
	copy(quote[header4:], udp(42))
	for want, typ := range map[string][]byte{
		"010400000000": {3, 3, 0, 0, 0, 0, 0, 0}, "020000000580": {3, 4, 0, 0, 0, 0, 0x05, 0x6c}, "030100000000": {11, 1, 0, 0, 0, 0, 0, 0},
		"040000000006": {12, 0, 0, 0, 9, 0, 0, 0},
	} {
		out, dropped := translate(&here, ip4(unix.IPPROTO_ICMP, 0, "8.8.8.8", withSum(append(typ, quote...), 2, unix.IPPROTO_ICMP, here.Own4, there.Own4)))
		if len(out) != 1 || valid(out[0]) != nil {
			t.Errorf("%v: %d packets, %s", typ, len(out), dropped)
			continue
		}
		p, _ := parse6(out[0][vnet:], false)
		q, err := parse6(p.payload[icmp:], true)
		if got := hex.EncodeToString(append(p.payload[:2:2], p.payload[4:8]...)); got != want || err != nil || q.src != there.Own6 || q.dst != here.Own6 || q.payloadSize != 50 {
			t.Errorf("%v: %s about %+v, expected %s", typ, got, q, want)
		}
	}
}

// TestRefused checks which packets are dropped, and that the stack learns it.
func TestRefused(t *testing.T) {
	foreign := ip4(unix.IPPROTO_UDP, dontFragment, "8.8.8.8", udp(5))
	copy(foreign[vnet+12:], []byte{10, 0, 0, 1})
	wellKnown := here
	wellKnown.Prefix = WellKnown
	for _, c := range []struct {
		config *Config
		m      []byte
		why    string
		code   int // of the ICMP error; -1: none
	}{
		{nil, ip4(unix.IPPROTO_TCP, dontFragment, "8.8.8.8", tcp(0)), DropNoPrefix, 0},
		{&here, ip4(unix.IPPROTO_TCP, dontFragment, "127.0.0.1", tcp(0)), DropDestination, 13},
		{&here, ip4(unix.IPPROTO_UDP, dontFragment, "224.0.0.1", udp(0)), DropDestination, -1},
		{&wellKnown, ip4(unix.IPPROTO_TCP, dontFragment, "10.0.0.1", tcp(0)), DropDestination, 13},
		{&here, ip4(unix.IPPROTO_TCP, dontFragment, "169.254.1.1", tcp(0)), DropDestination, 13},
		{&here, ip4(unix.IPPROTO_GRE, dontFragment, "8.8.8.8", tcp(0)), DropProtocol, 2},
		{&here, ip4(unix.IPPROTO_ICMP, 0x2000, "8.8.8.8", echo(8)), DropProtocol, 2},
		{&here, foreign, DropSource, -1},
		{&here, ip4(unix.IPPROTO_TCP, dontFragment, "8.8.8.8", tcp(0)[:19]), DropInvalid, -1},
		{&here, make([]byte, 12), DropInvalid, -1},
	} {
		out, dropped := translate(c.config, c.m)
		if dropped != c.why || (len(out) > 0) != (c.code >= 0) {
			t.Errorf("%x: dropped as %q with %d answers, expected %s", c.m[vnet:], dropped, len(out), c.why)
			continue
		}
		if c.code < 0 {
			continue
		}
		if p, err := parse4(out[0][vnet:], false); err != nil || valid(out[0]) != nil || p.payload[0] != 3 || int(p.payload[1]) != c.code || p.dst != here.Own4 {
			t.Errorf("answer %x, expected code %d", out[0][vnet:], c.code)
		}
	}
	if out, _ := translate(&here, ip4(unix.IPPROTO_TCP, dontFragment, "10.0.0.1", tcp(0))); len(out) != 1 || out[0][vnet]>>4 != 6 {
		t.Error("a network's own prefix does not carry its private addresses")
	}
	// From the network.
	for src, why := range map[string]string{
		"fd00::1": DropSource, "2001:db8:7f00:1::": DropSource, "2001:db8:e000:1::": DropSource, "2001:db8:808:808::1": DropSource,
	} {
		b := withSum(tcp(4), 16, unix.IPPROTO_TCP, addr(src), here.Own6)
		m := make([]byte, vnet+header6)
		putHeader6(m[vnet:], 0, len(b), unix.IPPROTO_TCP, 9, addr(src), here.Own6)
		if out, dropped := translate(&here, append(m, b...)); len(out) != 0 || dropped != why {
			t.Errorf("from %s: %d packets, %s", src, len(out), dropped)
		}
	}
}

// TestPrefixes checks the examples of RFC 6052, 2.4.
func TestPrefixes(t *testing.T) {
	for p, want := range map[string]string{
		"2001:db8::/32": "2001:db8:c000:221::", "2001:db8:100::/40": "2001:db8:1c0:2:21::", "2001:db8:122::/48": "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::", "2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96": "2001:db8:122:344::192.0.2.33", "64:ff9b::/96": "64:ff9b::192.0.2.33",
	} {
		v4 := addr("192.0.2.33")
		got := Embed(prefix(p), v4)
		back, ok := Extract(prefix(p), got)
		if got != addr(want) || back != v4 || !ok || CheckPrefix(prefix(p)) != nil {
			t.Errorf("%s: %s, expected %s; back %s %v", p, got, want, back, ok)
		}
	}
	for _, p := range []string{"2001:db8::/33", "2001:db8::1/96", "10.0.0.0/32", "ff00::/32", "fe80::/64", "2001:db8:0:0:100::/96", "::/96"} {
		if CheckPrefix(prefix(p)) == nil {
			t.Errorf("%s is accepted", p)
		}
	}
}

// FuzzTranslate checks that each result is a packet with consistent lengths, between the
// expected addresses.
func FuzzTranslate(f *testing.F) {
	for _, m := range [][]byte{
		ip4(unix.IPPROTO_TCP, dontFragment, "8.8.8.8", tcp(40)), ip4(unix.IPPROTO_UDP, 0x2000, "8.8.8.8", udp(16)),
		ip4(unix.IPPROTO_ICMP, 0, "8.8.8.8", echo(30)), ip4(unix.IPPROTO_UDP, 0, "8.8.8.8", udp(1400)),
	} {
		f.Add(m)
		six, _ := translate(&here, bytes.Clone(m))
		there4, _ := translate(&there, bytes.Clone(six[0]))
		f.Add(six[0])
		f.Add(there4[0])
		f.Add(error6(addr("fd00::1"), 2, 0, 1400, six[0][vnet:]))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > vnet+maxPacket {
			return
		}
		out, _ := translate(&here, message)
		for _, m := range out {
			b := m[vnet:]
			p, err := parse4(b, false)
			if b[0]>>4 == 6 {
				if p, err = parse6(b, false); p.src != here.Own6 || !here.Prefix.Contains(p.dst) {
					t.Errorf("from %s to %s", p.src, p.dst)
				}
			} else if p.dst != here.Own4 && p.src != dummy {
				t.Errorf("from %s to %s", p.src, p.dst)
			}
			if err != nil || p.head+len(p.payload) != len(b) {
				t.Errorf("%x: %v", m, err)
			}
			if o := parseOffload(m); o.partial && o.start+o.offset+2 > len(b) {
				t.Errorf("%x: the checksum is outside", m)
			}
		}
	})
}
