// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"golang.org/x/sys/unix"
)

// change turns a valid answer into a hostile one.
type change func(*dhcpv4.DHCPv4)

func opt(code uint8, value ...byte) change {
	return func(m *dhcpv4.DHCPv4) { m.Options[code] = value }
}

func addr(a, b, c, d byte) change {
	return func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IPv4(a, b, c, d) }
}

// hostile are answers that a client must reject.
var hostile = map[string]change{
	"no address":            addr(0, 0, 0, 0),
	"in network 0":          addr(0, 1, 2, 3),
	"loopback":              addr(127, 0, 0, 1),
	"multicast":             addr(224, 0, 0, 1),
	"reserved":              addr(240, 0, 0, 1),
	"everybody":             addr(255, 255, 255, 255),
	"the network":           addr(10, 80, 0, 0),
	"the broadcast address": addr(10, 80, 0, 255),
	"the server's own":      addr(10, 80, 0, 1),
	"mask 0":                opt(1, 0, 0, 0, 0),
	"mask /1":               opt(1, 128, 0, 0, 0),
	"a mask with holes":     opt(1, 255, 0, 255, 0),
	"a short mask":          opt(1, 255, 255),
	"no lease time":         func(m *dhcpv4.DHCPv4) { delete(m.Options, 51) },
	"a lease of 0":          opt(51, 0, 0, 0, 0),
	"a lease of 1":          opt(51, 0, 0, 0, 1),
	"a short lease time":    opt(51, 1),
	"no server":             func(m *dhcpv4.DHCPv4) { delete(m.Options, 54) },
	"server 0":              opt(54, 0, 0, 0, 0),
	"a multicast server":    opt(54, 224, 0, 0, 1),
	"another's":             func(m *dhcpv4.DHCPv4) { m.TransactionID[0] ^= 1 },
	"another client's":      func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = net.HardwareAddr{2, 0, 0, 0, 0, 9} },
	"a request":             func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootRequest },
	"no type":               func(m *dhcpv4.DHCPv4) { delete(m.Options, 53) },
	"a long type":           opt(53, 2, 5, 6, 7),
}

// harmless adds oddities that a client must omit from an otherwise valid lease.
func harmless(m *dhcpv4.DHCPv4) {
	for _, c := range []change{
		opt(26, 0, 68),       // MTU
		opt(58, 0, 0, 0, 0),  // T1
		opt(59, 255, 255, 9), // T2
		opt(6, 0, 0, 0, 0, 127, 0, 0, 1, 224, 0, 0, 1, 10, 80, 0, 53, 1, 2), // name servers
		opt(15, []byte("lab\nnameserver 6.6.6.6\x00 evil;x ok.example")...),
		opt(119, 0xc0, 0x00, 63, 1), // a pointer to itself
		opt(121, 0, 10, 80, 0, 77, // a default route through our own address
			32, 10, 80, 0, 77, 10, 80, 0, 1, // our own address, through the server
			8, 127, 10, 80, 0, 1, // loopback
			4, 224, 10, 80, 0, 1, // multicast
			16, 10, 99, 10, 80, 0, 1, // the only valid one
			24, 10, 98), // truncated
	} {
		c(m)
	}
}

// Before the valid answer, the server sends every hostile answer, garbage, and
// pieces of valid ones. The client uses only the valid answer.
func TestHostile(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "10.80.0.1/24")
	requests := make(chan dhcpv4.MessageType, 64)
	n.serve(func(m *dhcpv4.DHCPv4, send func([]byte)) {
		requests <- m.MessageType()
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
		}
		good := func() *dhcpv4.DHCPv4 {
			a, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind))
			if err != nil {
				panic(err)
			}
			addr(10, 80, 0, 77)(a)
			opt(1, 255, 255, 255, 0)(a)
			opt(51, 0, 0, 2, 88)(a)
			opt(54, 10, 80, 0, 1)(a)
			return a
		}
		for _, c := range hostile {
			a := good()
			c(a)
			send(a.ToBytes())
		}
		b := good().ToBytes()
		for size := range bytes.TrimRight(b, "\x00\xff") { // every truncated message
			if size%17 == 0 {
				send(b[:size])
			}
		}
		send(bytes.Repeat([]byte{0xff}, 9000)) // more than a frame, sent in fragments
		broken := bytes.Clone(b)
		broken[241] = 255 // an option longer than the message
		send(broken[:244])
		odd := good()
		harmless(odd)
		send(odd.ToBytes())
	})
	c := n.client()
	l := n.bound(c)
	want := &Lease{
		Addr: netip.MustParsePrefix("10.80.0.77/24"), Server: netip.MustParseAddr("10.80.0.1"), valid: 600 * time.Second,
		Routes: []Route{{netip.MustParsePrefix("10.99.0.0/16"), netip.MustParseAddr("10.80.0.1")}},
		DNS:    []netip.Addr{netip.MustParseAddr("10.80.0.53")}, Domains: []string{"lab", "nameserver", "ok.example"},
	}
	if l.Addr != want.Addr || l.Server != want.Server || !slices.Equal(l.Routes, want.Routes) || !slices.Equal(l.DNS, want.DNS) || !slices.Equal(l.Domains, want.Domains) || l.MTU != 0 || l.valid != want.valid {
		t.Errorf("lease %+v\nwant  %+v", l, want)
	}
	if len(requests) > 4 {
		t.Errorf("%d messages for one lease", len(requests))
	}
}

// serve answers clients from a thread in the server's namespace.
func (n *network) serve(answer func(m *dhcpv4.DHCPv4, send func([]byte))) {
	n.t.Helper()
	var pc net.PacketConn
	n.server.Do(n.t, func() error {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			cerr := c.Control(func(fd uintptr) {
				if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err == nil {
					err = unix.BindToDevice(int(fd), "s0")
				}
			})
			if cerr != nil {
				return cerr
			}
			return err
		}}
		var err error
		pc, err = lc.ListenPacket(context.Background(), "udp4", "0.0.0.0:67")
		return err
	})
	n.t.Cleanup(func() { pc.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			k, _, err := pc.ReadFrom(b)
			if err != nil {
				return // the socket is closed
			}
			m, err := dhcpv4.FromBytes(b[:k])
			if err != nil {
				continue
			}
			answer(m, func(p []byte) {
				_, _ = pc.WriteTo(p, &net.UDPAddr{IP: net.IPv4bcast, Port: 68}) // if it is lost, the client asks again
			})
		}
	}()
}

// sane describes the parts of a lease that must not be in a stack; "": none.
func sane(l *Lease, link *Link) string {
	a := l.Addr.Addr()
	switch {
	case !usable(a) || a.Is4() && l.Addr.Bits() < minPrefix:
		return "address"
	case l.valid < minLease || l.t1 < 0 || l.t1 > l.t2 || l.t2 > l.valid:
		return "times"
	case l.MTU != 0 && (l.MTU < minMTU4 || l.MTU > link.MTU):
		return "MTU"
	case len(l.DNS) > mostDNS || len(l.Domains) > mostSearch || len(l.Routes) > mostRoutes:
		return "too many"
	}
	for _, d := range l.DNS {
		if !usable(d) {
			return "name server"
		}
	}
	for _, d := range l.Domains {
		for _, r := range d {
			if r <= ' ' || r > '~' || r == ';' || r == '#' {
				return "domain"
			}
		}
	}
	for _, r := range l.Routes {
		if r.GW == a || r.GW.IsValid() && !usable(r.GW) || r.Dst != r.Dst.Masked() || r.Dst.Bits() == 0 && !r.GW.IsValid() {
			return "route"
		}
	}
	return ""
}

var fuzzLink = &Link{Name: "eth0", MTU: 1500, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}

func FuzzLease4(f *testing.F) {
	m, err := dhcpv4.New(dhcpv4.WithHwAddr(fuzzLink.MAC), dhcpv4.WithMessageType(dhcpv4.MessageTypeAck))
	if err != nil {
		f.Fatal(err)
	}
	m.OpCode = dhcpv4.OpcodeBootReply
	addr(10, 80, 0, 77)(m)
	opt(1, 255, 255, 255, 0)(m)
	opt(3, 10, 80, 0, 1)(m)
	opt(51, 0, 0, 2, 88)(m)
	opt(54, 10, 80, 0, 1)(m)
	f.Add(m.ToBytes())
	harmless(m)
	f.Add(m.ToBytes())
	for _, c := range hostile {
		x := *m
		x.Options = map[uint8][]byte{}
		for k, v := range m.Options {
			x.Options[k] = v
		}
		c(&x)
		f.Add(x.ToBytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := dhcpv4.FromBytes(b)
		if err != nil {
			return
		}
		if l, err := lease4(m, fuzzLink, time.Now()); err == nil {
			if what := sane(l, fuzzLink); what != "" {
				t.Errorf("%s: %+v", what, l)
			}
		}
	})
}

func FuzzDatagram(f *testing.F) {
	b := datagram(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("255.255.255.255"), []byte("hello"))
	binary.BigEndian.PutUint16(b[ipHeader:], serverPort)
	binary.BigEndian.PutUint16(b[ipHeader+2:], clientPort)
	if got, from, err := undatagram(b); err != nil || string(got) != "hello" || from.String() != "10.0.0.1" {
		f.Fatalf("%q from %v, %v", got, from, err)
	}
	partial := bytes.Clone(b)
	binary.BigEndian.PutUint16(partial[ipHeader+6:], fold(pseudo(partial)))
	if _, _, err := undatagram(partial); err != nil {
		f.Errorf("a sum that is left to hardware: %v", err)
	}
	bad := bytes.Clone(b)
	bad[ipHeader+7] ^= 0x55
	if _, _, err := undatagram(bad); err == nil {
		f.Error("a wrong sum is taken")
	}
	f.Add(b)
	f.Add(b[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, _, err := undatagram(b); err == nil && len(p) > len(b)-ipHeader-udpHeader {
			t.Errorf("%d bytes out of %d", len(p), len(b))
		}
		arpConflict(b, fuzzLink.MAC, netip.MustParseAddr("10.0.0.1"))
	})
}

// The client ignores half a gigabit of junk, and its next attempt finds the
// server.
func TestFlood(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "10.80.0.1/24")
	first := true
	n.serve(func(m *dhcpv4.DHCPv4, send func([]byte)) {
		if first {
			first = false
			junk := make([]byte, 400)
			for i := range junk {
				junk[i] = byte(rand.N(256))
			}
			for range 2 * junkMost {
				send(junk)
			}
		}
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
		}
		a, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind))
		if err != nil {
			panic(err)
		}
		addr(10, 80, 0, 77)(a)
		opt(51, 0, 0, 2, 88)(a)
		opt(54, 10, 80, 0, 1)(a)
		send(a.ToBytes())
	})
	if l := n.bound(n.client()); l.Addr != netip.MustParsePrefix("10.80.0.77/8") { // from the address class, because there is no mask
		t.Errorf("lease: %+v", l)
	}
}

func FuzzLease6(f *testing.F) {
	iaid := [4]byte{1, 2, 3, 4}
	for _, ip := range []string{"fd00::5", "::", "::1", "ff02::1", "fe80::1", "::ffff:10.0.0.1"} {
		for _, valid := range []time.Duration{0, time.Hour, infinite * time.Second} {
			m, err := dhcpv6.NewMessage()
			if err != nil {
				f.Fatal(err)
			}
			m.MessageType = dhcpv6.MessageTypeReply
			m.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: fuzzLink.MAC}))
			ia := &dhcpv6.OptIANA{IaId: iaid, T1: valid / 3, T2: valid / 2}
			ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(ip), PreferredLifetime: valid, ValidLifetime: valid})
			m.AddOption(ia)
			m.AddOption(dhcpv6.OptDNS(net.ParseIP("fd00::53"), net.ParseIP("::1"), net.ParseIP("ff02::1")))
			f.Add(m.ToBytes())
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := dhcpv6.MessageFromBytes(b)
		if err != nil {
			return
		}
		l, err := lease6(m, iaid, time.Now())
		if err != nil {
			return
		}
		if what := sane(l, fuzzLink); what != "" {
			t.Errorf("%s: %+v", what, l)
		}
		if l.Addr.Addr().IsLinkLocalUnicast() || l.preferred > l.valid {
			t.Errorf("%+v", l)
		}
	})
}
