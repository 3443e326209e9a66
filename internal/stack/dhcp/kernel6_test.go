// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// six makes the stack's eth0 process router advertisements. With slaac, it also
// derives addresses from them.
func (n *network) six(slaac bool) func(*Link) {
	autoconf := "0"
	if slaac {
		autoconf = "1"
	}
	for _, kv := range []string{"accept_ra=2", "autoconf=" + autoconf, "router_solicitation_delay=0"} {
		n.stack.Run(n.t, "sysctl", "-qw", "net.ipv6.conf.eth0."+kv)
	}
	return func(l *Link) { l.V4, l.V6, l.SLAAC, l.IPv6 = false, !slaac, slaac, true }
}

// With dnsmasq's DHCPv6, the client gets an address after the stack's duplicate
// address detection, and a router from an advertisement. At the end it sends a
// release.
func TestLease6(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "fd80::1/64")
	p := n.server.DnsmasqDHCP(t, "s0", "--enable-ra", "--dhcp-range=fd80::100,fd80::1ff,64,600", "--dhcp-option=option6:dns-server,[fd80::53]", "--dhcp-option=option6:domain-search,lab.example")
	c := n.client(n.six(false))
	n.bound(c)
	l := lease(c, ProtoV6)
	if !netip.MustParsePrefix("fd80::100/120").Contains(l.Addr.Addr()) || !slices.Equal(l.DNS, []netip.Addr{netip.MustParseAddr("fd80::53")}) || !slices.Equal(l.Domains, []string{"lab.example"}) {
		t.Errorf("lease: %+v", l)
	}
	shown := n.stack.Run(t, "ip", "-6", "addr", "show", "dev", "eth0")
	if !strings.Contains(shown, l.Addr.String()) || strings.Contains(shown, "tentative") || strings.Contains(shown, "mngtmpaddr") {
		t.Errorf("addresses: %s", shown)
	}
	n.eventually("the router", func() bool { return n.has("default via fe80", "ip", "-6", "route") })
	c.Release()
	n.eventually("the release", func() bool { a, b := p.Output(); return strings.Contains(a+b, "DHCPRELEASE(s0)") })
	n.eventually("the address goes", func() bool { return !n.has(l.Addr.String(), "ip", "-6", "addr") })
}

// The client gets a router's prefix and name servers, and the rest from its
// stateless server.
func TestSLAAC(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "fd81::1/64")
	n.server.DnsmasqDHCP(t, "s0", "--enable-ra", "--dhcp-range=fd81::,ra-stateless,64,600", "--dhcp-option=option6:dns-server,[fd81::53]", "--dhcp-option=option6:domain-search,ra.example")
	c := n.client(n.six(true))
	n.bound(c)
	if l := lease(c, ProtoRA); l == nil || l.Addr.Masked() != netip.MustParsePrefix("fd81::/64") {
		t.Errorf("lease: %+v", l)
	}
	n.eventually("the stateless server's answer", func() bool { return lease(c, ProtoInfo) != nil })
	n.eventually("name servers", func() bool {
		servers, search := c.Resolver()
		return slices.Equal(servers, []netip.Addr{netip.MustParseAddr("fd81::53")}) && slices.Equal(search, []string{"ra.example"})
	})
}

// A router's advertisement alone is enough to get name servers.
func TestRDNSS(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "fd82::1/64")
	n.server.DnsmasqDHCP(t, "s0", "--enable-ra", "--dhcp-range=fd82::,ra-only,64,600", "--dhcp-option=option6:dns-server,[fd82::53]", "--dhcp-option=option6:domain-search,ra.example")
	c := n.client(n.six(true))
	n.bound(c)
	n.eventually("name servers", func() bool {
		servers, search := c.Resolver()
		return slices.Equal(servers, []netip.Addr{netip.MustParseAddr("fd82::53")}) && slices.Equal(search, []string{"ra.example"})
	})
	if l := lease(c, ProtoRA); len(l.DNS) != 1 || len(l.Domains) != 1 || !l.Server.IsLinkLocalUnicast() {
		t.Errorf("shown: %+v", l)
	}
	if state(c, ProtoInfo) != "" {
		t.Errorf("a server was asked though no router says that there is one: %+v", c.Statuses())
	}
}
