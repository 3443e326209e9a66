// SPDX-License-Identifier: Apache-2.0

//go:build !device

package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/pkg/capture"
)

// A talk is a made-up use of UDP: what is sent and received at each reading, and the state of the
// socket. A silent one has no finding.
type talk struct {
	name   string
	remote string
	await  Await
	want   Code
	change func(k int, say func(Datagram), r *Reading)
}

const (
	nameServer = "10.0.0.53:53"
	timeServer = "10.0.0.9:123"
)

// each makes a datagram at some readings.
func each(every int, d Datagram) func(int, func(Datagram), *Reading) {
	return func(k int, say func(Datagram), _ *Reading) {
		if k%every == 0 {
			say(d)
		}
	}
}

// refuses is an ICMP error that answers each query.
func refuses(what string) func(int, func(Datagram), *Reading) {
	return func(k int, say func(Datagram), _ *Reading) {
		if k%5 == 0 {
			say(Datagram{Out: true, Name: "example.org"})
			say(Datagram{Error: what, From: netip.MustParseAddr("10.0.0.53")})
		}
	}
}

// loses makes the stack drop packets.
func loses(reason, from, to string) func(int, func(Datagram), *Reading) {
	return func(k int, say func(Datagram), r *Reading) {
		if k == 5 {
			r.Drops = []drops.Record{{Time: r.At, Kind: drops.Drop, Reason: reason, Meaning: drops.Meaning(reason), Protocol: "udp",
				Source: netip.MustParseAddrPort(from), Destination: netip.MustParseAddrPort(to)}}
		}
	}
}

// misses is the state of the routes.
func misses(n uint64, servers ...string) func(int, func(Datagram), *Reading) {
	return func(_ int, _ func(Datagram), r *Reading) {
		r.RouteErrors = n
		for _, s := range servers {
			r.NoRoute = append(r.NoRoute, netip.MustParseAddr(s))
		}
	}
}

var talks = []talk{
	{"a silent name server", nameServer, Receive, NameServer, each(10, Datagram{Out: true, Name: "example.org"})},
	{"a silent name server behind the gateway", nameServer, Receive, NameServer, each(10, Datagram{Out: true, Name: "example.org", Iface: "user0"})},
	{"a late query", nameServer, Receive, "", func(k int, say func(Datagram), _ *Reading) {
		if k == 15 {
			say(Datagram{Out: true, Name: "example.org"})
		}
	}},
	{"a query before the observation", nameServer, Receive, NameServer, func(int, func(Datagram), *Reading) {}},
	{"a slow name server", nameServer, Receive, "", func(k int, say func(Datagram), _ *Reading) { say(Datagram{Out: k%15 == 0, Name: "example.org"}) }},
	{"a name server without a socket", nameServer, Receive, NameServer, refuses(portUnreachable)},
	{"a name server behind a firewall", nameServer, Receive, NameServer, refuses("administratively prohibited")},
	{"a name server that fails", nameServer, Receive, NameServer, func(k int, say func(Datagram), _ *Reading) {
		say(Datagram{Out: k%2 == 0, Name: "example.org", Failure: map[int]string{1: "SERVFAIL"}[k%2]})
	}},
	{"a name server without a host", nameServer, Receive, NameServer, loses("NEIGH_FAILED", "10.0.0.1:40000", nameServer)},
	{"a rule that drops the answers of a name server", nameServer, Receive, NameServer, loses("NETFILTER_DROP", nameServer, "10.0.0.1:40000")},
	{"a packet for a closed port", nameServer, Elsewhere, "", loses("NO_SOCKET", nameServer, "10.0.0.1:40000")},
	{"two name servers without a route", timeServer, Elsewhere, NameServer, misses(3, "10.1.0.53", "10.2.0.53")},
	{"a name server without a route that nobody asks", timeServer, Elsewhere, "", misses(0, "10.1.0.53")},
	{"a missing route to others", timeServer, Elsewhere, "", misses(3)},
	{"no answer to datagrams", timeServer, Receive, Datagrams, each(10, Datagram{Out: true})},
	{"no answer to datagrams of an event loop", timeServer, Events, Datagrams, each(10, Datagram{Out: true})},
	{"no answer to datagrams, through the gateway", timeServer, Receive, Datagrams, each(10, Datagram{Out: true, Iface: "user0"})},
	{"a closed port for datagrams", timeServer, Receive, Datagrams, refuses(portUnreachable)},
	{"nothing sent, and nothing received", timeServer, Receive, Datagrams, func(int, func(Datagram), *Reading) {}},
	{"an idle event loop", timeServer, Events, "", func(int, func(Datagram), *Reading) {}},
	{"statistics in datagrams", timeServer, Elsewhere, "", each(5, Datagram{Out: true})},
	{"a stream of datagrams", timeServer, Events, "", func(_ int, say func(Datagram), _ *Reading) { say(Datagram{Out: true}); say(Datagram{Out: true}) }},
	{"datagrams to a group", "224.0.0.251:5353", Receive, "", each(10, Datagram{Out: true})},
	{"a peer that has stopped answering", timeServer, Receive, Datagrams, func(k int, say func(Datagram), _ *Reading) {
		if k%10 == 0 {
			say(Datagram{Out: k > 0})
		}
	}},
}

// TestTalks checks the finding of each made-up use of UDP, and the words of all.
func TestTalks(t *testing.T) {
	var b strings.Builder
	for _, tt := range talks {
		j := &Judge{}
		for k := range 51 {
			r := &Reading{At: time.Unix(1000, 0).Add(time.Duration(k) * every), Ifaces: map[string]Iface{"user0": {Gateway: true}}}
			if k > 20 && tt.name != "a peer that has stopped answering" {
				break
			}
			s := sockdiag.Socket{Proto: sockdiag.UDP, State: sockdiag.Established, Cookie: 7, Processes: []sockdiag.Process{{PID: 42, Comm: "curl"}},
				Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(tt.remote)}
			r.UDP = []UDPSocket{{s, tt.await}}
			tt.change(k, func(d Datagram) {
				d.At, d.Local, d.Remote = r.At, s.Local, s.Remote
				r.Datagrams = append(r.Datagrams, d)
			}, r)
			j.Add(r)
		}
		r := j.Report()
		var got Code
		if len(r.Findings) > 0 {
			got = r.Findings[0].Code
			fmt.Fprintf(&b, "%s\n\n    %s\n\n", tt.name, strings.ReplaceAll(r.Text, ". ", ".\n    "))
		}
		if got != tt.want || len(r.Findings) > 1 {
			t.Errorf("%s: %+v, want %q", tt.name, r.Findings, tt.want)
		}
	}
	golden(t, "testdata/udp.golden", b.String())
}

// FuzzDatagrams decodes packets of any content.
func FuzzDatagrams(f *testing.F) {
	q, err := (&dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		f.Fatal(err)
	}
	udp := append([]byte{0x9c, 0x40, 0, 53, 0, byte(8 + len(q)), 0, 0}, q...)
	ip := func(protocol byte, payload []byte) []byte {
		return append([]byte{0x45, 0, 0, byte(20 + len(payload)), 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 53}, payload...)
	}
	f.Add(ip(unix.IPPROTO_UDP, udp), true)
	f.Add(ip(unix.IPPROTO_ICMP, append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, ip(unix.IPPROTO_UDP, udp)...)), false)
	f.Add(append(append([]byte{0x60, 0, 0, 0, 0, byte(len(udp)), unix.IPPROTO_UDP, 64}, make([]byte, 32)...), udp...), true)
	f.Fuzz(func(t *testing.T, data []byte, out bool) {
		p := &capture.Packet{Data: data, Dir: capture.In}
		if out {
			p.Dir = capture.Out
		}
		for _, loopback := range []bool{false, true} {
			for _, d := range datagrams(p, &capture.Interface{LinkType: capture.LinkTypeRaw, Loopback: loopback}) {
				if !d.Local.IsValid() || !d.Remote.IsValid() {
					t.Errorf("%+v", d)
				}
			}
		}
	})
}

// The seeds of FuzzDatagrams have a name and an error.
func TestDatagrams(t *testing.T) {
	packet := []byte{0x45, 0, 0, 57, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 53, 0x9c, 0x40, 0, 53, 0, 37, 0, 0,
		0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 3, 'o', 'r', 'g', 0, 0, 1, 0, 1}
	refusal := append([]byte{0x45, 0, 0, 85, 0, 0, 0, 0, 64, unix.IPPROTO_ICMP, 0, 0, 10, 0, 0, 53, 10, 0, 0, 1, 3, 3, 0, 0, 0, 0, 0, 0}, packet...)
	for _, tt := range []struct {
		data []byte
		dir  capture.Direction
		want string
	}{
		{packet, capture.Out, "10.0.0.1:40000 10.0.0.53:53 true example.org "},
		{packet, capture.In, "10.0.0.53:53 10.0.0.1:40000 false example.org "},
		{refusal, capture.In, "10.0.0.1:40000 10.0.0.53:53 false  port unreachable"},
	} {
		got := ""
		for _, d := range datagrams(&capture.Packet{Data: tt.data, Dir: tt.dir}, &capture.Interface{LinkType: capture.LinkTypeRaw}) {
			got += fmt.Sprint(d.Local, " ", d.Remote, " ", d.Out, " ", d.Name, " ", d.Error)
		}
		if got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
