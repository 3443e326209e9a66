// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func in(l *Lease, network string) bool {
	return l != nil && netip.MustParsePrefix(network).Contains(l.Addr.Addr())
}

// A server that no longer knows the old network refuses the renewal. The old
// address is removed, and one of the new network is added.
func TestMove(t *testing.T) {
	const subnet = "opt subnet 255.255.255.0"
	for name, serve := range map[string]func(n *network, net string) *kit.Proc{
		"udhcpd": func(n *network, net string) *kit.Proc {
			return n.server.Udhcpd(n.t, "s0", net+".50", net+".60", 3, subnet, "opt router "+net+".1").Proc
		},
		"dnsmasq": func(n *network, net string) *kit.Proc {
			return n.server.DnsmasqDHCP(n.t, "s0", "--dhcp-range="+net+".50,"+net+".60,255.255.255.0,120", "--dhcp-option=option:T1,2", "--dhcp-option=option:T2,4")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			n.server.Addr(t, "s0", "10.80.0.1/24")
			old := serve(n, "10.80.0")
			c := n.client()
			if l := n.bound(c); !in(l, "10.80.0.0/24") {
				t.Fatalf("lease: %+v", l)
			}
			old.Signal(syscall.SIGTERM)
			old.Wait(wait)
			n.server.Run(t, "ip", "addr", "flush", "dev", "s0", "scope", "global")
			n.server.Addr(t, "s0", "10.81.0.1/24")
			serve(n, "10.81.0")
			n.eventually("an address of the new network", func() bool { return in(lease(c, ProtoV4), "10.81.0.0/24") })
			if n.has("inet 10.80.", "ip", "-4", "addr") || !n.has("default via 10.81.0.1", "ip", "route") || n.has("via 10.80.0.1", "ip", "route") {
				t.Errorf("the stack has\n%s%s", n.stack.Run(t, "ip", "-4", "addr"), n.stack.Run(t, "ip", "route"))
			}
		})
	}
}

// The client declines an address that another host has, and gets the next one.
func TestDecline(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "10.80.0.1/24")
	n.server.Addr(t, "lo", "10.80.0.50/32") // s0 answers ARP for it, and dnsmasq does not know it
	mac := strings.TrimSpace(n.stack.Run(t, "cat", "/sys/class/net/eth0/address"))
	p := n.server.DnsmasqDHCP(t, "s0", "--dhcp-range=10.80.0.60,10.80.0.70,255.255.255.0,600", "--dhcp-host="+mac+",10.80.0.50")
	c := n.client()
	l := n.bound(c)
	if !in(l, "10.80.0.0/24") || l.Addr.Addr() == netip.MustParseAddr("10.80.0.50") {
		t.Errorf("lease: %+v", l)
	}
	if out, errs := p.Output(); !strings.Contains(out+errs, "DHCPDECLINE(s0) 10.80.0.50") {
		t.Errorf("the server was not told:\n%s%s", out, errs)
	}
	if !n.told("10.80.0.50, which host ") {
		t.Errorf("told: %q", n.said)
	}
}

// After a cable was unplugged, the client asks whether the lease is still
// valid, and continues with it if so. In another network it gets another
// address.
func TestCarrier(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "10.80.0.1/24")
	args := []string{"--dhcp-range=10.80.0.50,10.80.0.60,255.255.255.0,600"}
	p := n.server.DnsmasqDHCP(t, "s0", args...)
	c := n.client()
	first := n.bound(c)
	said := func() string { out, errs := p.Output(); return out + errs }
	discovers := strings.Count(said(), "DHCPDISCOVER")

	n.server.Run(t, "ip", "link", "set", "s0", "down")
	n.eventually("the loss is seen", func() bool { return state(c, ProtoV4) == StateDown })
	if !n.has(first.Addr.String(), "ip", "addr") {
		t.Error("the address is given up as soon as the carrier goes")
	}
	n.server.Run(t, "ip", "link", "set", "s0", "up")
	n.eventually("the lease holds", func() bool {
		l := lease(c, ProtoV4)
		return state(c, ProtoV4) == StateBound && l.From.After(first.From) && l.Addr == first.Addr
	})
	if got := strings.Count(said(), "DHCPDISCOVER"); got != discovers {
		t.Errorf("it asked from scratch: %d DISCOVERs, before %d", got, discovers)
	}
	// Setting the device down and up in the stack removes the routes, and
	// the client restores them.
	n.stack.Run(t, "ip", "link", "set", "eth0", "down")
	n.eventually("it is seen", func() bool { return state(c, ProtoV4) == StateDown })
	n.stack.Run(t, "ip", "link", "set", "eth0", "up")
	n.eventually("the route", func() bool { return n.has("default via 10.80.0.1", "ip", "route") })

	n.server.Run(t, "ip", "link", "set", "s0", "down")
	n.eventually("the loss is seen", func() bool { return state(c, ProtoV4) == StateDown })
	p.Signal(syscall.SIGTERM)
	p.Wait(wait)
	n.server.Run(t, "ip", "addr", "flush", "dev", "s0", "scope", "global")
	n.server.Addr(t, "s0", "10.82.0.1/24")
	n.server.DnsmasqDHCP(t, "s0", "--dhcp-range=10.82.0.50,10.82.0.60,255.255.255.0,600")
	n.server.Run(t, "ip", "link", "set", "s0", "up")
	n.eventually("an address of the new network", func() bool { return in(lease(c, ProtoV4), "10.82.0.0/24") })
	if n.has("inet 10.80.", "ip", "-4", "addr") {
		t.Error("the old address is still there")
	}
}

// A DHCPv6 lease is renewed, moves with its network, and expires without a
// server.
func TestLifetimes6(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "fd80::1/64")
	p := n.server.DnsmasqDHCP(t, "s0", "--enable-ra", "--dhcp-range=fd80::100,fd80::1ff,64,120")
	c := n.client(n.six(false))
	n.bound(c)
	first := lease(c, ProtoV6)
	c.Renew()
	n.eventually("a renewal", func() bool {
		l := lease(c, ProtoV6)
		return state(c, ProtoV6) == StateBound && l.Addr == first.Addr && l.From.After(first.From)
	})
	n.server.Run(t, "ip", "link", "set", "s0", "down")
	n.eventually("the loss is seen", func() bool { return state(c, ProtoV6) == StateDown })
	n.server.Run(t, "ip", "link", "set", "s0", "up")
	n.server.Addr(t, "s0", "fd80::1/64") // it is removed with the link
	n.eventually("the lease holds", func() bool {
		return state(c, ProtoV6) == StateBound && n.has(first.Addr.String(), "ip", "-6", "addr")
	})
	p.Signal(syscall.SIGTERM)
	p.Wait(wait)
	n.server.Run(t, "ip", "-6", "addr", "flush", "dev", "s0", "scope", "global")
	n.server.Addr(t, "s0", "fd81::1/64")
	n.server.DnsmasqDHCP(t, "s0", "--enable-ra", "--dhcp-range=fd81::100,fd81::1ff,64,120")
	c.Renew()
	n.eventually("an address of the new network", func() bool { return in(lease(c, ProtoV6), "fd81::/64") })
	if n.has("inet6 fd80::", "ip", "-6", "addr") {
		t.Errorf("the old address is still there:\n%s", n.stack.Run(t, "ip", "-6", "addr"))
	}
}

// The client declines an IPv6 address that a neighbour has, and gets another
// one.
func TestDecline6(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "fd80::1/64")
	// The server answers for fd80::105 without having it. Otherwise dnsmasq
	// would not offer it.
	for _, kv := range []string{"all.forwarding=1", "s0.proxy_ndp=1"} {
		n.server.Run(t, "sysctl", "-qw", "net.ipv6.conf."+kv)
	}
	n.server.Run(t, "sysctl", "-qw", "net.ipv6.neigh.s0.proxy_delay=0")
	n.server.Run(t, "ip", "-6", "neigh", "add", "proxy", "fd80::105", "dev", "s0")
	mac := strings.TrimSpace(n.stack.Run(t, "cat", "/sys/class/net/eth0/address"))
	p := n.server.DnsmasqDHCP(t, "s0", "--enable-ra", "--dhcp-range=fd80::200,fd80::2ff,64,600", "--dhcp-host=id:00:03:00:01:"+mac+",[fd80::105]")
	c := n.client(n.six(false))
	n.bound(c)
	if l := lease(c, ProtoV6); !in(l, "fd80::200/120") {
		t.Errorf("lease: %+v", l)
	}
	if n.has("fd80::105", "ip", "-6", "addr") {
		t.Error("the stack has the address that it declined")
	}
	if out, errs := p.Output(); !strings.Contains(out+errs, "disabling DHCP static address fd80::105") {
		t.Errorf("the server was not told:\n%s%s", out, errs)
	}
}
