// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
)

// A router's name servers are removed when they expire or the router withdraws
// them. An announcement without changes causes no report.
func TestNameServersEnd(t *testing.T) {
	changes := make(chan struct{}, 256)
	c := New(nil, Link{Name: "eth0", SLAAC: true}, Options{Changed: func() { changes <- struct{}{} }})
	router := netip.MustParseAddr("fe80::1")
	say := func(life time.Duration, server string) {
		c.nameServers([]stacknet.NameServers{{Router: router, Servers: []netip.Addr{netip.MustParseAddr(server)}, Lifetime: life}})
	}
	count := func() int { servers, _ := c.Resolver(); return len(servers) }
	say(stacknet.Forever, "fd00::53")
	say(stacknet.Forever, "fd00::53")
	if count() != 1 || len(changes) != 1 {
		t.Errorf("%d servers, told %d times", count(), len(changes))
	}
	say(0, "fd00::53")
	if count() != 0 || len(changes) != 2 {
		t.Errorf("taken back: %d servers, told %d times", count(), len(changes))
	}
	say(100*time.Millisecond, "fe80::53")
	if servers, _ := c.Resolver(); len(servers) != 1 || servers[0].String() != "fe80::53%eth0" {
		t.Errorf("servers: %v", servers)
	}
	kit.WaitFor(t, "the end of a lifetime", wait, func() bool { return count() == 0 && len(changes) == 4 })
	for n := range 100 {
		router = netip.AddrFrom16([16]byte{0xfe, 0x80, 15: byte(n)})
		say(time.Hour, "fd00::53")
	}
	if len(c.rdnss) > mostHeard {
		t.Errorf("%d routers are remembered", len(c.rdnss))
	}
	c.forgetting.Stop()
}
