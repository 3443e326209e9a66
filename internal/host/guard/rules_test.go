// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/pkg/config"
	"github.com/lklrun/lklrun/test/kit"
)

// pair is a host with shared addresses, and a peer on the same network.
type pair struct {
	host, peer *kit.Netns
}

const (
	hostIP  = "192.0.2.1"
	hostIP6 = "2001:db8::1"
)

func newPair(t *testing.T) *pair {
	kit.Need(t, "ip", "nft", "iptables", "ip6tables", "iptables-legacy")
	p := &pair{kit.NewNetns(t, "guarded"), kit.NewNetns(t, "peer")}
	kit.Veth(t, p.host, "v0", p.peer, "v1")
	p.host.Addr(t, "v0", hostIP+"/24", hostIP6+"/64")
	p.peer.Addr(t, "v1", "192.0.2.2/24", "2001:db8::2/64")
	// The test counts every error that the host sends, so there must be no
	// rate limit.
	p.host.Run(t, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")
	return p
}

// rules returns the host's firewall rules without counters.
func (p *pair) rules(t *testing.T) string {
	t.Helper()
	var all string
	for _, cmd := range []string{"nft list ruleset", "iptables-save", "ip6tables-save", "iptables-legacy-save", "ip6tables-legacy-save"} {
		all += p.host.Run(t, append([]string{"sh", "-c"}, "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null; "+cmd)...)
	}
	all = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(all, "") // remove comments, which contain times
	return regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+`).ReplaceAllString(all, "")
}

// connecting starts a connection from the peer without waiting.
func (p *pair) connecting(t *testing.T, address string) int {
	t.Helper()
	a := netip.MustParseAddrPort(address)
	var fd int
	p.peer.Do(t, func() (err error) {
		family := unix.AF_INET6
		var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
		if a.Addr().Is4() {
			family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
		}
		if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Connect(fd, sa); !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connect: %w", err)
		}
		return nil
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// dial returns the host's answer to a connection to a port.
func (p *pair) dial(t *testing.T, network, address string) error {
	t.Helper()
	var result error
	p.peer.Do(t, func() error {
		c, err := net.DialTimeout(network, address, 10*time.Second)
		if err != nil {
			result = err
			return nil
		}
		defer c.Close()
		if network == "udp" {
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				return err
			}
			_, result = c.Read(make([]byte, 16))
		}
		return nil
	})
	return result
}

// answered reports whether a connection has received a reset. When answered
// returns, the host has processed all packets sent before the call.
func (p *pair) answered(t *testing.T, fd int) bool {
	t.Helper()
	for _, ip := range []string{hostIP, "[" + hostIP6 + "]"} {
		if err := p.dial(t, "tcp", ip+":7"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("the host's answer at a closed port, %s:7: %v", ip, err)
		}
	}
	no, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		t.Fatal(err)
	}
	if no != 0 && unix.Errno(no) != unix.ECONNREFUSED {
		t.Errorf("the connection says %v", unix.Errno(no))
	}
	return no != 0
}

var testPorts = Ports{First: 20000, Last: 20999, Listen: []uint16{8080}}

func (p *pair) guard(t *testing.T, mode string, journal *[]Rules) *Guard {
	return New(Config{
		Name: "t-1", Mode: mode, Ports: testPorts,
		Others:  func() ([]Rules, error) { return nil, nil },
		Journal: func(r Rules) error { *journal = append(*journal, r); return nil },
		Tell:    func(s string) { t.Log(s) },
		Log:     slog.New(slog.DiscardHandler),
	})
}

var shared = Link{Device: "v0", Addrs: []netip.Addr{netip.MustParseAddr(hostIP), netip.MustParseAddr(hostIP6)}}

// Each method hides exactly the stack's packets from the host, and leaves
// nothing behind.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		method Method
		legacy string // existing legacy tables; empty: nftables
	}{
		{NFTIngress, ""}, {NFTPrerouting, ""},
		{IPTRaw, ""}, {IPTMangle, ""}, {IPTInput, ""},
		{IPTRaw, "raw"}, {IPTMangle, "mangle"}, {IPTInput, "filter"},
	} {
		t.Run(strings.TrimSpace(string(c.method)+" "+c.legacy), func(t *testing.T) {
			p := newPair(t)
			if c.legacy != "" {
				asLegacy(t)
				p.host.Run(t, "iptables-legacy", "-t", c.legacy, "-S")
				p.host.Run(t, "ip6tables-legacy", "-t", c.legacy, "-S")
			}
			p.host.Run(t, "nft", "add table inet admins; add chain inet admins c { type filter hook input priority 0; }; add rule inet admins c tcp dport 9 counter drop")
			before := p.rules(t)
			ctx := t.Context()
			s := &Set{Name: "t-1", Ports: testPorts, Links: []Link{shared}}
			r := Rules{Method: c.method, Name: s.Name, Tag: s.tag()}
			b := backendOf(c.method)

			p.host.Do(t, func() error {
				if err := b.available(ctx); err != nil {
					return err
				}
				if err := b.prepare(ctx, &r); err != nil {
					return err
				}
				if err := b.apply(ctx, s); err != nil {
					return err
				}
				return b.apply(ctx, s) // the second call replaces the rules of the first
			})
			p.look(t, b, s, true)
			for _, ip := range []string{hostIP, "[" + hostIP6 + "]"} {
				for _, port := range []string{":20000", ":20999", ":8080"} {
					if fd := p.connecting(t, ip+port); p.answered(t, fd) {
						t.Errorf("the host has answered at %s%s", ip, port)
					}
				}
				for _, port := range []string{":19999", ":21000", ":8081"} {
					for _, network := range []string{"tcp", "udp"} {
						if err := p.dial(t, network, ip+port); !errors.Is(err, unix.ECONNREFUSED) {
							t.Errorf("%s %s%s: %v", network, ip, port, err)
						}
					}
				}
			}
			count := p.look(t, b, s, true)
			if count.Packets < 6 || count.Bytes < 6*40 {
				t.Errorf("counted %+v", count)
			}
			p.silentUDP(t)
			if after := p.look(t, b, s, true); after.Packets <= count.Packets {
				t.Errorf("counted %+v, after UDP %+v", count, after)
			}

			for range 2 {
				p.host.Do(t, func() error { return Remove(ctx, r) })
			}
			if after := p.rules(t); after != before {
				t.Error(cmp.Diff(before, after))
			}
			if fd := p.connecting(t, hostIP+":20000"); !p.answered(t, fd) {
				t.Error("the host does not answer when the rules are gone")
			}
		})
	}
}

// silentUDP sends to a port of the stack and to another one. When the answer to
// the second arrives, an answer to the first would have arrived too.
func (p *pair) silentUDP(t *testing.T) {
	t.Helper()
	p.peer.Do(t, func() error {
		c, err := net.Dial("udp", hostIP+":20500")
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		d, err := net.Dial("udp", hostIP+":21500")
		if err != nil {
			return err
		}
		defer d.Close()
		if _, err := d.Write([]byte("x")); err != nil {
			return err
		}
		if err := d.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		if _, err := d.Read(make([]byte, 16)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("the host's port: %v", err)
		}
		if _, err := c.Write([]byte("x")); err != nil { // reports an error that has arrived
			t.Errorf("the stack's port: %v", err)
		}
		return nil
	})
}

func (p *pair) look(t *testing.T, b backend, s *Set, want bool) (c Count) {
	t.Helper()
	p.host.Do(t, func() error {
		complete, counted, err := b.look(t.Context(), s)
		if complete != want {
			t.Errorf("complete: %v", complete)
		}
		c = counted
		return err
	})
	return c
}

// asLegacy selects the legacy iptables.
func asLegacy(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, what := range []string{"", "-restore"} {
			if err := os.Symlink("/usr/sbin/"+name+"-legacy"+what, dir+"/"+name+what); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The printed commands create the same rules.
func TestPrint(t *testing.T) {
	p := newPair(t)
	s := Set{Name: "t-1", Ports: testPorts, Links: []Link{shared}}
	for _, m := range Methods(config.GuardAuto) {
		var text strings.Builder
		if err := Print(&text, m, s); err != nil {
			t.Fatal(err)
		}
		r := Rules{Method: m, Name: s.Name, Tag: s.tag()}
		p.host.Do(t, func() error { return backendOf(m).prepare(t.Context(), &r) })
		shell := text.String()
		if strings.HasPrefix(string(m), "nft") {
			shell = "nft -f - <<'END'\n" + shell + "END\n"
		}
		p.host.Run(t, "sh", "-ec", shell)
		byHand := p.rules(t)
		p.host.Do(t, func() error { return backendOf(m).apply(t.Context(), &s) })
		if ours := p.rules(t); ours != byHand {
			t.Errorf("%s:\n%s", m, cmp.Diff(byHand, ours))
		}
		p.host.Do(t, func() error { return Remove(t.Context(), r) })
	}
}

// Packet sockets receive packets that the rules of the best method drop.
func TestPacketSocketsFirst(t *testing.T) {
	p := newPair(t)
	var journal []Rules
	g := p.guard(t, config.GuardAuto, &journal)
	fd := -1
	p.host.Do(t, func() error {
		if err := g.Add(t.Context(), shared); err != nil {
			return err
		}
		filter, err := Filter(true, shared.Addrs, testPorts)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := attach(fd, filter); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
			return err
		}
		ifi, err := net.InterfaceByName("v0")
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8, Ifindex: ifi.Index})
	})
	defer unix.Close(fd)
	if err := p.dial(t, "tcp", hostIP+":7"); !errors.Is(err, unix.ECONNREFUSED) { // the packet socket must not receive this
		t.Error(err)
	}
	p.connecting(t, hostIP+":20100")
	b := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n > 37 && b[12] == 8 && b[13] == 0 {
			if port := int(b[36])<<8 | int(b[37]); port != 20100 {
				t.Errorf("heard a packet to port %d", port)
			}
			break
		}
	}
	if st := p.status(t, g); st.Method != NFTIngress || st.Kept.Packets < 1 || len(journal) != 1 || journal[0].Method != NFTIngress {
		t.Errorf("%+v, %+v", st, journal)
	}
}

// Flushed rules are restored and reported once, and their counts are kept.
func TestRestored(t *testing.T) {
	for _, c := range []struct {
		mode, flush string
	}{
		{config.GuardNFT, "nft flush ruleset"},
		{config.GuardNFT, "nft flush table netdev lklrun-t-1"},
		{config.GuardNFT, "nft delete rule netdev lklrun-t-1 guard0 handle $(nft -a list table netdev lklrun-t-1 | sed -n 's/.*dport 8080.*handle //p' | head -n 1)"},
		{config.GuardIPTables, "iptables -t raw -F"},
	} {
		t.Run(c.flush, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			before := p.rules(t)
			var journal []Rules
			g := p.guard(t, c.mode, &journal)
			told := make(chan string, 100)
			g.cfg.Tell = func(s string) { told <- s }
			p.host.Do(t, func() error { return g.Add(t.Context(), shared) })
			if fd := p.connecting(t, hostIP+":20000"); p.answered(t, fd) {
				t.Error("the host has answered")
			}
			complete := p.rules(t)
			kept := p.status(t, g).Kept.Packets
			if kept == 0 {
				t.Error("nothing was counted")
			}
			g.backend = inNetns{backend: g.backend, n: p.host, t: t}
			// The reports come from the namespace in which the
			// socket is created.
			p.host.Do(t, func() error { return g.Start(t.Context()) })
			defer g.Stop()
			for n := 1; n <= 2; n++ {
				p.host.Run(t, "sh", "-c", c.flush)
				kit.WaitFor(t, "the rules come back", time.Minute, func() bool { return p.rules(t) == complete })
				kit.WaitFor(t, "it is counted", time.Minute, func() bool { return p.status(t, g).Restored == n })
			}
			if got := p.status(t, g); got.Kept.Packets < kept {
				t.Errorf("%d packets were kept from the host, now it is %+v", kept, got)
			}
			if s := <-told; len(told) != 0 || !strings.Contains(s, "has restored the rules") {
				t.Errorf("told %d more times than once: %s", len(told), s)
			}
			g.Stop()
			for _, r := range journal {
				p.host.Do(t, func() error { return Remove(t.Context(), r) })
			}
			if after := p.rules(t); after != before {
				t.Error(cmp.Diff(before, after))
			}
		})
	}
}

func (p *pair) status(t *testing.T, g *Guard) (s *Status) {
	t.Helper()
	p.host.Do(t, func() (err error) { s, err = g.Status(t.Context()); return err })
	return s
}

// inNetns runs a backend in a namespace, no matter which thread calls it.
type inNetns struct {
	backend
	n *kit.Netns
	t *testing.T
}

func (b inNetns) look(ctx context.Context, s *Set) (complete bool, c Count, err error) {
	b.n.Do(b.t, func() error { complete, c, err = b.backend.look(ctx, s); return nil })
	return complete, c, err
}

func (b inNetns) apply(ctx context.Context, s *Set) (err error) {
	b.n.Do(b.t, func() error { err = b.backend.apply(ctx, s); return nil })
	return err
}

// Devices can be added and removed, and a table that does not belong to the run
// is not changed.
func TestLinks(t *testing.T) {
	p := newPair(t)
	p.host.Run(t, "ip", "link", "add", "v2", "type", "veth", "peer", "name", "v3")
	second := Link{Device: "v2", Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.1")}}
	for _, mode := range []string{config.GuardNFT, config.GuardIPTables, config.GuardOff} {
		before := p.rules(t)
		var journal []Rules
		g := p.guard(t, mode, &journal)
		add := func(l Link) { p.host.Do(t, func() error { return g.Add(t.Context(), l) }) }
		del := func(l Link) { p.host.Do(t, func() error { return g.Delete(t.Context(), l) }) }
		add(shared)
		add(second)
		shown, all := strings.Join(p.status(t, g).Rules, "\n"), p.rules(t)
		for _, want := range []string{hostIP, hostIP6, "198.51.100.1"} {
			if strings.Contains(shown, want) != (mode != config.GuardOff) {
				t.Errorf("%s: %s in\n%s", mode, want, shown)
			}
			if strings.Contains(all, want) != (mode != config.GuardOff) {
				t.Errorf("%s: %s in\n%s", mode, want, all)
			}
		}
		del(shared)
		if all := p.rules(t); strings.Contains(all, hostIP) || strings.Contains(all, "lklrun") != (mode != config.GuardOff) {
			t.Errorf("%s: %s", mode, all)
		}
		del(second)
		if all := p.rules(t); strings.Contains(all, "lklrun") {
			t.Errorf("%s: %s", mode, all)
		}
		add(second)
		if want := 1; mode != config.GuardOff && len(journal) != want {
			t.Errorf("%s: %d undos", mode, len(journal))
		}
		for _, r := range journal {
			p.host.Do(t, func() error { return Remove(t.Context(), r) })
		}
		if after := p.rules(t); after != before {
			t.Errorf("%s: %s", mode, cmp.Diff(before, after))
		}
	}

	p.host.Run(t, "nft", "add table netdev lklrun-t-1; add chain netdev lklrun-t-1 c { type filter hook ingress device v0 priority 0; }; add rule netdev lklrun-t-1 c counter comment mine")
	before := p.rules(t)
	var journal []Rules
	p.host.Do(t, func() error {
		err := p.guard(t, config.GuardAuto, &journal).Add(t.Context(), shared)
		if err == nil || !strings.Contains(err.Error(), "nft table lklrun-t-1, which this run did not create") {
			t.Errorf("%v", err)
		}
		return Remove(t.Context(), Rules{Method: NFTIngress, Name: "t-1", Tag: "lklrun-t-1:20000-20999"})
	})
	if after := p.rules(t); after != before {
		t.Error(cmp.Diff(before, after))
	}
	if slices.ContainsFunc(journal, func(r Rules) bool { return r.Method == NFTIngress }) {
		t.Errorf("%+v", journal)
	}
}
