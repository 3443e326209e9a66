// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

const wait = 30 * time.Second

// network is a stack whose eth0 leads to s0 of a namespace with servers.
type network struct {
	t      *testing.T
	stack  *lklhost.Host
	conn   *stackconn.Conn
	server *kit.Netns

	mu   sync.Mutex
	said []string
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	kit.Need(t, "ip", "busybox", "dnsmasq")
	n := &network{t: t, server: kit.NewNetns(t, "server"), stack: lklhost.OnHost(t)}
	n.server.Run(t, "ip", "link", "add", "s0", "type", "veth", "peer", "name", "eth0", "netns", n.stack.Name)
	n.server.Run(t, "ip", "link", "set", "s0", "up")
	n.conn = n.stack.Dial(t)
	return n
}

// client starts a client for eth0. change can enable more than DHCPv4.
func (n *network) client(change ...func(*Link)) *Client {
	n.t.Helper()
	link := Link{Name: "eth0", Metric: 100, V4: true}
	for _, f := range change {
		f(&link)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	eth := n.stack.Run(n.t, "ip", "-o", "link", "show", "dev", "eth0")
	if !strings.Contains(eth, "UP") {
		n.stack.Run(n.t, "ip", "link", "set", "eth0", "up")
	}
	log := slog.New(slog.NewTextHandler(testLog{n.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := New(n.conn, link, Options{Hostname: "box-test", Log: log, Notify: n.tell, Changed: func() {}})
	if err := c.Start(ctx); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(c.Stop)
	return c
}

func (n *network) tell(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, line)
	n.t.Log("told:", line)
}

func (n *network) told(part string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.said, func(s string) bool { return strings.Contains(s, part) })
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (n *network) bound(c *Client) *Lease {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		n.t.Fatalf("no lease: %v: %+v", err, c.Statuses())
	}
	return lease(c, ProtoV4)
}

// lease returns a protocol's lease; nil: none.
func lease(c *Client, proto string) *Lease {
	for _, s := range c.Statuses() {
		if s.Proto == proto {
			return s.Lease
		}
	}
	return nil
}

// state returns the state of a protocol's client.
func state(c *Client, proto string) string {
	for _, s := range c.Statuses() {
		if s.Proto == proto {
			return s.State
		}
	}
	return ""
}

func (n *network) has(what string, args ...string) bool {
	n.t.Helper()
	return strings.Contains(n.stack.Run(n.t, args...), what)
}

func (n *network) eventually(what string, cond func() bool) {
	n.t.Helper()
	kit.WaitFor(n.t, what, wait, cond)
}

// The stack gets exactly the server's lease, and the server receives the
// release.
func TestLease(t *testing.T) {
	for name, serve := range map[string]func(n *network) (log func() string, released string){
		"udhcpd": func(n *network) (func() string, string) {
			p := n.server.Udhcpd(n.t, "s0", "10.80.0.50", "10.80.0.60", 600,
				"opt subnet 255.255.255.0", "opt router 10.80.0.1", "opt dns 10.80.0.1 10.80.0.2", "opt domain lab.example", "opt mtu 1400")
			return func() string { return p.Leases(n.t) }, "expired"
		},
		"dnsmasq": func(n *network) (func() string, string) {
			p := n.server.DnsmasqDHCP(n.t, "s0", "--dhcp-range=10.80.0.50,10.80.0.60,255.255.255.0,600",
				"--dhcp-option=option:dns-server,10.80.0.1,10.80.0.2", "--domain=lab.example", "--dhcp-option=option:mtu,1400")
			return func() string { a, b := p.Output(); return a + b }, "DHCPRELEASE(s0)"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			n.server.Addr(t, "s0", "10.80.0.1/24")
			log, released := serve(n)
			c := n.client()
			l := n.bound(c)
			if want := netip.MustParsePrefix("10.80.0.0/24"); l.Addr.Masked() != want || l.MTU != 1400 || len(l.DNS) != 2 || !slices.Equal(l.Domains, []string{"lab.example"}) {
				t.Errorf("lease: %+v", l)
			}
			for _, want := range []string{"inet " + l.Addr.String() + " brd 10.80.0.255", "mtu 1400", "dynamic"} {
				if !n.has(want, "ip", "addr", "show", "dev", "eth0") {
					t.Errorf("the stack has not %q:\n%s", want, n.stack.Run(t, "ip", "addr"))
				}
			}
			if !n.has("default via 10.80.0.1 dev eth0 proto dhcp src "+l.Addr.Addr().String()+" metric 100", "ip", "route") {
				t.Errorf("routes: %s", n.stack.Run(t, "ip", "route"))
			}
			servers, search := c.Resolver()
			if len(servers) != 2 || len(search) != 1 {
				t.Errorf("resolver: %v %v", servers, search)
			}
			c.Release()
			n.eventually("the release", func() bool { return strings.Contains(log(), released) })
			n.eventually("the address goes", func() bool { return !n.has("inet 10.80", "ip", "addr") })
			n.eventually("nothing is left", func() bool {
				return n.has("mtu 1500", "ip", "link", "show", "dev", "eth0") && !n.has("default", "ip", "route")
			})
			c.Renew()
			n.eventually("a lease again", func() bool { return n.has("inet 10.80", "ip", "addr") })
		})
	}
}

// seconds returns the remaining lifetime of an address in the stack.
func (n *network) seconds() int {
	n.t.Helper()
	_, rest, found := strings.Cut(n.stack.Run(n.t, "ip", "-4", "addr", "show", "dev", "eth0"), "valid_lft ")
	var s int
	if _, err := fmt.Sscanf(rest, "%dsec", &s); !found || err != nil {
		return -1
	}
	return s
}

// A lease is renewed at T1 as long as the server exists, and the address never
// disappears. Without a server, rebinding fails, and the address expires.
func TestRenewAndExpiry(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.server.Addr(t, "s0", "10.80.0.1/24")
	p := n.server.Udhcpd(t, "s0", "10.80.0.50", "10.80.0.60", 5, "opt subnet 255.255.255.0", "opt router 10.80.0.1")
	c := n.client()
	first := n.bound(c)
	if s := n.seconds(); s < 1 || s > 5 {
		t.Errorf("the stack keeps the address for %d s, of a lease of 5 s", s)
	}
	n.eventually("two renewals", func() bool {
		if !n.has(first.Addr.String(), "ip", "addr") {
			t.Fatal("the address was away")
		}
		l := lease(c, ProtoV4)
		return l != nil && l.From.Sub(first.From) > 4*time.Second
	})
	p.Signal(syscall.SIGKILL)
	n.eventually("rebinding", func() bool { return state(c, ProtoV4) == StateRebinding })
	if !n.has(first.Addr.String(), "ip", "addr") {
		t.Error("the address is gone before its end")
	}
	n.eventually("the end", func() bool { return state(c, ProtoV4) == StateSelecting })
	if n.has(first.Addr.String(), "ip", "addr") || n.has("default", "ip", "route") {
		t.Error("the address stays behind its end")
	}
	if !n.told("the lease of " + first.Addr.String() + " has expired") {
		t.Errorf("told: %q", n.said)
	}
	n.server.Udhcpd(t, "s0", "10.80.0.50", "10.80.0.60", 600, "opt subnet 255.255.255.0")
	n.eventually("a lease again", func() bool { return state(c, ProtoV4) == StateBound })
}

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
