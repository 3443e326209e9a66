// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// tuples returns packets, and the addresses of their sockets.
func tuples(t testing.TB) []tupleCase {
	tcp, udp := &layers.TCP{SrcPort: 1, DstPort: 2}, &layers.UDP{SrcPort: 1, DstPort: 2}
	fragment := ipv4(layers.IPProtocolUDP)
	fragment.FragOffset = 185
	return []tupleCase{
		{"tcp", "192.0.2.1:40000 198.51.100.2:80", Packet{Data: segment(t, 40000, 0)}, LinkTypeEthernet},
		{"received", "198.51.100.2:80 192.0.2.1:40000", Packet{Data: segment(t, 40000, 0), Dir: In}, LinkTypeEthernet},
		{"tcp 6", "[2001:db8::1]:1 [2001:db8::2]:2", Packet{Data: frame(t, layers.EthernetTypeIPv6, ipv6(layers.IPProtocolTCP), tcp)}, LinkTypeEthernet},
		{"udp", "192.0.2.1:5000 198.51.100.2:6000", Packet{Data: datagram(t, 5000)}, LinkTypeEthernet},
		{"vlan", "192.0.2.1:1 198.51.100.2:2", Packet{Data: frame(t, layers.EthernetTypeDot1Q,
			&layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}, ipv4(layers.IPProtocolUDP), udp)}, LinkTypeEthernet},
		{"raw ip", "192.0.2.1:1 198.51.100.2:2", Packet{Data: serialize(t, ipv4(layers.IPProtocolUDP), udp)}, LinkTypeRaw},
		{"raw ip 6", "[2001:db8::1]:1 [2001:db8::2]:2", Packet{Data: serialize(t, ipv6(layers.IPProtocolUDP), udp)}, LinkTypeRaw},
		{"tcp header cut", "192.0.2.1:40000 198.51.100.2:80", Packet{Data: segment(t, 40000, 0)[:40]}, LinkTypeEthernet},
		{"ip header cut", "", Packet{Data: segment(t, 40000, 0)[:24]}, LinkTypeEthernet},
		{"ethernet cut", "", Packet{Data: segment(t, 40000, 0)[:10]}, LinkTypeEthernet},
		{"nothing", "", Packet{}, LinkTypeEthernet},
		{"ping", "", Packet{Data: ping}, LinkTypeEthernet},
		{"arp", "", Packet{Data: frame(t, layers.EthernetTypeARP, gopacket.Payload(make([]byte, 28)))}, LinkTypeEthernet},
		{"fragment", "", Packet{Data: frame(t, layers.EthernetTypeIPv4, fragment, gopacket.Payload("rest"))}, LinkTypeEthernet},
	}
}

type tupleCase struct {
	name, want string
	packet     Packet
	link       LinkType
}

func TestTupleOf(t *testing.T) {
	for _, c := range tuples(t) {
		got := ""
		if tup, ok := tupleOf(&c.packet, c.link); ok {
			got = tup.local.String() + " " + tup.remote.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzTupleOf(f *testing.F) {
	for _, c := range tuples(f) {
		f.Add(c.packet.Data, int(c.link))
	}
	f.Fuzz(func(_ *testing.T, data []byte, lt int) {
		tupleOf(&Packet{Data: data}, LinkType(lt))
	})
}

// stage is a stack whose sockets a test controls.
type stage struct {
	sockets []Socket
	err     error
	looks   int
}

func (s *stage) annotator() *annotator {
	return &annotator{sockets: func(context.Context) ([]Socket, error) {
		s.looks++
		return s.sockets, s.err
	}}
}

// annotate annotates packets as if the last query were long ago.
func annotate(t *testing.T, a *annotator, p []Packet) []Packet {
	t.Helper()
	a.next = time.Time{}
	a.annotate(t.Context(), p, LinkTypeEthernet)
	return p
}

// packetOf returns a packet of a TCP flow from 192.0.2.1.
func packetOf(t *testing.T, port int) []Packet {
	t.Helper()
	data := segment(t, port, 0)
	return []Packet{{Data: data, Length: len(data), Dir: Out}}
}

func socketOf(port uint16, note string) Socket {
	return Socket{
		Proto:  unix.IPPROTO_TCP,
		Local:  netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port),
		Remote: netip.MustParseAddrPort("198.51.100.2:80"),
		Owner:  &Owner{PID: 42, Comm: "curl", Inode: 7, FDs: []int{5}},
		Note:   note,
	}
}

func TestAnnotate(t *testing.T) {
	s := &stage{sockets: []Socket{socketOf(40000, "mptcp token 023ebfb7 id 2")}}
	a := s.annotator()

	p := annotate(t, a, packetOf(t, 40000))
	if p[0].Owner == nil || p[0].Owner.PID != 42 || p[0].Owner.Inode != 7 || p[0].Comment != "curl(42) fd 5, mptcp token 023ebfb7 id 2" {
		t.Fatalf("%+v %q", p[0].Owner, p[0].Comment)
	}
	for range 10 { // packets of known flows cause no queries
		p = annotate(t, a, packetOf(t, 40000))
	}
	if s.looks != 1 || p[0].Owner == nil {
		t.Fatalf("%d looks, owner %v", s.looks, p[0].Owner)
	}

	// A flow without a socket causes only one query.
	for range 10 {
		p = annotate(t, a, packetOf(t, 5))
	}
	if s.looks != 2 || p[0].Owner != nil {
		t.Fatalf("%d looks, owner %v", s.looks, p[0].Owner)
	}

	// The socket has lost its owner and then disappears. The last packets
	// still get the owner.
	closing := socketOf(40000, "")
	closing.Owner = nil
	for i, now := range [][]Socket{{closing}, nil} {
		s.sockets = now
		annotate(t, a, packetOf(t, 100+i)) // causes a query
		p = annotate(t, a, packetOf(t, 40000))
		if p[0].Owner == nil || p[0].Comment == "" {
			t.Errorf("after its end: %v %q", p[0].Owner, p[0].Comment)
		}
	}

	// A later socket has the same addresses. Its packets get the owner of the later
	// socket.
	other := socketOf(40000, "")
	other.Owner = &Owner{PID: 43, Comm: "wget"}
	s.sockets = []Socket{other}
	annotate(t, a, packetOf(t, 200))
	p = annotate(t, a, packetOf(t, 40000))
	if p[0].Owner == nil || p[0].Owner.PID != 43 || p[0].Comment != "wget(43)" {
		t.Errorf("%+v %q", p[0].Owner, p[0].Comment)
	}
}

// TestAnnotateServer tests servers. A connection that is not accepted yet belongs
// to its listener. An IPv6 socket also serves IPv4. A UDP socket owns all flows of
// its port.
func TestAnnotateServer(t *testing.T) {
	s := &stage{sockets: []Socket{
		{Proto: unix.IPPROTO_TCP, Local: netip.MustParseAddrPort("[::]:40000"), Remote: netip.MustParseAddrPort("[::]:0"), Owner: &Owner{PID: 1}},
		{Proto: unix.IPPROTO_TCP, Local: netip.MustParseAddrPort("[::ffff:192.0.2.1]:40001"), Remote: netip.MustParseAddrPort("[::ffff:198.51.100.2]:80"), Owner: &Owner{PID: 2}},
		{Proto: unix.IPPROTO_UDP, Local: netip.MustParseAddrPort("0.0.0.0:5000"), Owner: &Owner{PID: 3}},
	}}
	a := s.annotator()
	udp := datagram(t, 5000)
	for _, c := range []struct {
		packets []Packet
		pid     int
	}{{packetOf(t, 40000), 1}, {packetOf(t, 40001), 2}, {[]Packet{{Data: udp, Length: len(udp), Dir: Out}}, 3}} {
		annotate(t, a, c.packets)
		if o := c.packets[0].Owner; o == nil || o.PID != c.pid {
			t.Errorf("owner %+v, want process %d", o, c.pid)
		}
	}
}

// TestAnnotateEarly checks that a connection that is being established is queried
// again.
func TestAnnotateEarly(t *testing.T) {
	early := socketOf(40000, "")
	early.Early = true
	s := &stage{sockets: []Socket{early}}
	a := s.annotator()
	p := annotate(t, a, packetOf(t, 40000))
	if p[0].Owner == nil || p[0].Comment != "curl(42) fd 5" {
		t.Fatalf("%+v %q", p[0].Owner, p[0].Comment)
	}
	// A query has already missed this connection. The query for another flow finds
	// it.
	s.sockets = []Socket{socketOf(40000, "mptcp token 00000009")}
	annotate(t, a, packetOf(t, 1))
	p = annotate(t, a, packetOf(t, 40000))
	if p[0].Comment != "curl(42) fd 5, mptcp token 00000009" {
		t.Errorf("%q", p[0].Comment)
	}
}

// TestAnnotateSeldom checks that a stack is not queried more often than allowed. If
// a stack fails or does not answer, it blocks packets only briefly.
func TestAnnotateSeldom(t *testing.T) {
	s := &stage{err: errors.New("no")}
	a := s.annotator()
	a.pause = time.Hour
	for i := range 100 {
		a.annotate(t.Context(), packetOf(t, i+1), LinkTypeEthernet)
	}
	if s.looks != 1 {
		t.Errorf("%d looks", s.looks)
	}
	stuck := make(chan struct{})
	defer close(stuck)
	a = &annotator{sockets: func(context.Context) ([]Socket, error) { <-stuck; return nil, nil }}
	for i := range 3 {
		annotate(t, a, packetOf(t, i+1))
	}
}
