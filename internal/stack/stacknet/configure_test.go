// SPDX-License-Identifier: Apache-2.0

package stacknet_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func twoLinks() stacknet.Config {
	return stacknet.Config{
		Links: []stacknet.Link{
			{
				Name: "eth0", MAC: net.HardwareAddr{2, 0, 0, 0, 1, 1}, MTU: 1400,
				Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("fd01::2/64")},
				GW4:   netip.MustParseAddr("10.1.0.1"), GW6: netip.MustParseAddr("fd01::1"),
				Metric: 100,
			},
			{
				Name:   "eth1",
				Addrs:  []netip.Prefix{netip.MustParsePrefix("10.2.0.2/32")},
				GW4:    netip.MustParseAddr("10.9.0.1"), // in none of our networks
				Metric: 101,
			},
		},
		MPTCP: &stacknet.MPTCPLimits{Subflows: 5, AddAddrAccepted: 4},
		Sysctls: []stacknet.Sysctl{
			{Key: "net.ipv4.tcp_congestion_control", Value: "reno"},
			{Key: "net/ipv4/conf/eth0/rp_filter", Value: "2"},
		},
	}
}

// wires adds the stack's interfaces, as LINK_ADD does.
func wires(t *testing.T, s *lklhost.Host) {
	t.Helper()
	s.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far0")
	s.Run(t, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "far1")
	s.Run(t, "ip", "link", "set", "far0", "up")
	s.Run(t, "ip", "link", "set", "far1", "up")
}

func TestConfigure(t *testing.T) {
	s := lklhost.OnHost(t)
	wires(t, s)
	c, ctx := s.Dial(t), limit(t)
	// Configure twice: the second call has nothing to change.
	for range 2 {
		if err := stacknet.Configure(ctx, c, twoLinks()); err != nil {
			t.Fatal(err)
		}
	}
	has := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if n := strings.Count(text, want); n != 1 {
				t.Errorf("%d times, want once: %q in\n%s", n, want, text)
			}
		}
	}
	has(s.Run(t, "ip", "-o", "link"), "lo: <LOOPBACK,UP,LOWER_UP>", "mtu 1400", "link/ether 02:00:00:00:01:01")
	has(s.Run(t, "ip", "-o", "addr", "show", "dev", "eth0"), "inet 10.1.0.2/24 brd 10.1.0.255 scope global eth0", "inet6 fd01::2/64 scope global nodad")
	has(s.Run(t, "ip", "-o", "addr", "show", "dev", "eth1"), "inet 10.2.0.2/32")
	has(s.Run(t, "ip", "route"), "default via 10.1.0.1 dev eth0 proto static metric 100", "default via 10.9.0.1 dev eth1 proto static metric 101 onlink", "10.1.0.0/24 dev eth0 proto kernel")
	has(s.Run(t, "ip", "-6", "route"), "default via fd01::1 dev eth0 proto static metric 100")
	has(s.Run(t, "ip", "mptcp", "limits"), "add_addr_accepted 4 subflows 5")
	has(s.Run(t, "ip", "route", "get", "10.77.0.1"), "via 10.1.0.1 dev eth0")

	for key, want := range map[string]string{
		"net.ipv4.tcp_congestion_control": "reno",
		"net.ipv4.conf.eth0.rp_filter":    "2",
	} {
		if v, err := stacknet.GetSysctl(ctx, c, key); err != nil || v != want {
			t.Errorf("%s: %q, %v", key, v, err)
		}
	}

	links, err := stacknet.Links(ctx, c)
	if err != nil || len(links) != 5 {
		t.Errorf("links: %v, %v", links, err)
	}
	addrs, err := stacknet.Addresses(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, a := range addrs {
		found = found || a.Prefix == netip.MustParsePrefix("fd01::2/64")
	}
	if !found {
		t.Errorf("addresses: %v", addrs)
	}
}

func TestConfigureErrors(t *testing.T) {
	s := lklhost.OnHost(t)
	wires(t, s)
	c, ctx := s.Dial(t), limit(t)
	for name, tc := range map[string]struct {
		change func(*stacknet.Config)
		want   []string
		is     error
	}{
		"no such interface": {
			func(c *stacknet.Config) { c.Links[1].Name = "eth7" },
			[]string{"eth7", "no such interface", "lo, ", "eth1"}, nil,
		},
		"an address that is none": {
			func(c *stacknet.Config) {
				c.Links[0].Addrs = []netip.Prefix{netip.MustParsePrefix("224.0.0.1/24")}
			},
			nil, nil, // kernels differ: some accept it
		},
		"MTU too small": {
			func(c *stacknet.Config) { c.Links[0].MTU = 10 },
			[]string{"configuring eth0: setting it up", "MTU 10", "mtu less than device minimum"}, syscall.EINVAL,
		},
		"unknown sysctl": {
			func(c *stacknet.Config) { c.Sysctls = []stacknet.Sysctl{{Key: "net.ipv4.no_such", Value: "1"}} },
			[]string{"sysctl net.ipv4.no_such=1: the stack has no such setting"}, syscall.ENOENT,
		},
		"refused value": {
			func(c *stacknet.Config) { c.Sysctls = []stacknet.Sysctl{{Key: "net.ipv4.tcp_rmem", Value: "many"}} },
			[]string{"sysctl net.ipv4.tcp_rmem=many: the stack refused the value: invalid argument"}, syscall.EINVAL,
		},
		"a value without a file": {
			func(c *stacknet.Config) {
				c.Sysctls = []stacknet.Sysctl{{Key: "net.ipv4.tcp_congestion_control", Value: "none-such"}}
			},
			[]string{"sysctl net.ipv4.tcp_congestion_control=none-such: the stack refused the value"}, syscall.ENOENT,
		},
		"read-only": {
			func(c *stacknet.Config) {
				c.Sysctls = []stacknet.Sysctl{{Key: "net.ipv4.tcp_available_congestion_control", Value: "x"}}
			},
			[]string{"is not writable"}, syscall.EACCES,
		},
		"a directory": {
			func(c *stacknet.Config) { c.Sysctls = []stacknet.Sysctl{{Key: "net.ipv4", Value: "1"}} },
			[]string{"no such setting"}, nil,
		},
		"no key": {
			func(c *stacknet.Config) { c.Sysctls = []stacknet.Sysctl{{Key: "net..ipv4", Value: "1"}} },
			[]string{`sysctl "net..ipv4"; expected a key`}, nil,
		},
		"MPTCP limits": {
			func(c *stacknet.Config) { c.MPTCP.Subflows = 100 },
			[]string{"setting the MPTCP limits to 100 subflows"}, syscall.EINVAL,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := twoLinks()
			tc.change(&cfg)
			err := stacknet.Configure(ctx, c, cfg)
			if len(tc.want) == 0 {
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%q is not %v", err, tc.is)
			}
		})
	}
}

func TestSysctlPath(t *testing.T) {
	for key, want := range map[string]string{
		"net.ipv4.ip_forward":            "/proc/sys/net/ipv4/ip_forward",
		"net/ipv4/ip_forward":            "/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/ipv4/ip_forward":  "/proc/sys/net/ipv4/ip_forward",
		"net.ipv4.conf.eth0/1.rp_filter": "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
		"net/ipv4/conf/eth0.1/rp_filter": "/proc/sys/net/ipv4/conf/eth0.1/rp_filter",
	} {
		got, err := stacknet.SysctlPath(key)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", key, got, err)
			continue
		}
		if back, err := stacknet.SysctlPath(stacknet.SysctlKey(got)); err != nil || back != want {
			t.Errorf("%s: as key %s, back %s, %v", key, stacknet.SysctlKey(got), back, err)
		}
	}
	for _, key := range []string{"", ".", "/", "net.", "net/../../version", "a//b", "..", "net.ipv4\n"} {
		if path, err := stacknet.SysctlPath(key); err == nil {
			t.Errorf("%q: %s", key, path)
		}
	}
}
