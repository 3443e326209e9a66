// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// only6 is a network with IPv6 only, and a router with a NAT64 (tayga):
//
//	host: v0 or t0 ─── r0 2001:db8:1::1 router: NAT64 2001:db8:64::/96 ─── 198.51.100.1
type only6 struct {
	*testing.T
	router *kit.Netns
	dir    string // served by nginx at 198.51.100.1: hello
	rawIP  bool
	raw    bool
}

const (
	nat64Prefix = "2001:db8:64::/96"
	server4     = "198.51.100.1"
)

func newOnly6(t *testing.T, rawIP bool) *only6 {
	t.Helper()
	kit.Need(t, "tayga", "nginx", "curl", "/usr/bin/python3", "ping", kit.Bin("lklrun"), kit.Bin("lklctl"), kit.Bin("lklhost"))
	s := &only6{T: t, router: kit.NewNetns(t, "router"), dir: kit.Dir(t), rawIP: rawIP}
	if rawIP {
		near, far := kit.OpenTun(t, kit.Host, "t0", unix.IFF_TUN|unix.IFF_NO_PI), kit.OpenTun(t, s.router, "r0", unix.IFF_TUN|unix.IFF_NO_PI)
		kit.Host.Run(t, "ip", "link", "set", "t0", "up")
		s.router.Run(t, "ip", "link", "set", "r0", "up")
		t.Cleanup(kit.CarryFrames(near, far))
	} else {
		kit.Veth(t, kit.Host, "v0", s.router, "r0")
	}
	s.router.Addr(t, "r0", "2001:db8:1::1/64")
	s.router.Addr(t, "lo", server4+"/32")
	s.router.Run(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=1")
	conf := kit.WriteFile(t, filepath.Join(kit.Dir(t), "tayga.conf"),
		"tun-device nat64\nipv4-addr 192.168.255.1\nipv6-addr 2001:db8:ffff::1\nprefix "+nat64Prefix+"\ndynamic-pool 192.168.255.0/24\n")
	s.router.Run(t, "tayga", "--config", conf, "--mktun")
	s.router.Run(t, "ip", "link", "set", "nat64", "up")
	s.router.Run(t, "ip", "route", "add", "192.168.255.0/24", "dev", "nat64")
	s.router.Run(t, "ip", "route", "add", nat64Prefix, "dev", "nat64")
	kit.Start(t, s.router.Command("tayga", "--config", conf, "--nodetach"))
	kit.WriteFile(t, filepath.Join(s.dir, "hello"), "hello\n")
	s.router.Nginx(t, kit.Nginx{Root: s.dir})
	s.router.EchoUDP(t, server4+":7")
	s.router.EchoTCP(t, server4+":7")
	return s
}

// uplink returns the interface specification of the stack's end.
func (s *only6) uplink() string {
	if s.rawIP {
		return "rawip:t0,slaac"
	}
	if s.raw {
		return "raw:v0,slaac"
	}
	return "macvtap:v0,slaac"
}

// advertise answers router solicitations with a prefix for addresses and more options, until
// the end of the test. It returns a function that sends an advertisement with other options.
func (s *only6) advertise(options ...[]byte) (send func(options ...[]byte)) {
	s.Helper()
	var c net.PacketConn
	s.router.Do(s.T, func() (err error) {
		c, err = net.ListenPacket("ip6:ipv6-icmp", "::")
		return err
	})
	s.Cleanup(func() { _ = c.Close() })
	p := ipv6.NewPacketConn(c)
	kit.Must(s.T, p.SetMulticastHopLimit(255), p.SetHopLimit(255))
	send = func(options ...[]byte) {
		ra := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
		prefix := netip.MustParseAddr("2001:db8:1::").As16()
		ra = append(ra, 3, 4, 64, 0xc0, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 0, 0)
		ra = append(ra, prefix[:]...)
		for _, o := range options {
			ra = append(ra, o...)
		}
		_, _ = c.WriteTo(ra, &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: "r0"}) // it may get lost
	}
	s.router.Do(s.T, func() error {
		i, err := net.InterfaceByName("r0")
		if err != nil {
			return err
		}
		return p.JoinGroup(i, &net.IPAddr{IP: net.IPv6linklocalallrouters})
	})
	go func() {
		b := make([]byte, 1500)
		for {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return // the test has ended
			}
			if n >= 8 && b[0] == 133 {
				send(options...)
			}
		}
	}()
	return send
}

// pref64 returns the option PREF64 (RFC 8781) for a /96.
func pref64(prefix string, lifetime time.Duration) []byte {
	a := netip.MustParsePrefix(prefix).Addr().As16()
	o := binary.BigEndian.AppendUint16([]byte{38, 2}, uint16(lifetime/(8*time.Second))<<3)
	return append(o, a[:12]...)
}

// rdnss returns the option RDNSS (RFC 8106).
func rdnss(server string) []byte {
	a := netip.MustParseAddr(server).As16()
	return append([]byte{25, 3, 0, 0, 0, 0, 7, 8}, a[:]...)
}

// ipv4Program uses IPv4 by literal addresses: TCP with much data in both directions at once,
// UDP with and without fragments, and ping.
//
//go:embed testdata/ipv4only.py
var ipv4Program string

// ipv4Output is its output.
const ipv4Output = `tcp: 16777216 bytes came back
udp: 10 1400 1452 1472 4000 9000
ping: answered
`

// TestCLAT runs programs that use only literal IPv4 addresses in a network with IPv6 only,
// whose router announces the NAT64.
func TestCLAT(t *testing.T) {
	for _, c := range []struct{ engine, link, stack string }{
		{"supervise", "macvtap", "mptcp"}, {"preload", "rawip", "mptcp"}, {"preload", "macvtap", "vanilla"}, {"supervise", "rawip", "mptcp"},
		{"trace", "macvtap", "mptcp"}, {"supervise", "raw", "mptcp"}, {"preload", "raw", "mptcp"}, {"supervise", "macvtap", "linux-6.1"},
	} {
		t.Run(fmt.Sprintf("%s-%s-%s", c.engine, c.link, c.stack), func(t *testing.T) {
			clatWorks(t, c.engine, c.link, c.stack)
		})
	}
}

// TestCLATNewest does the same with the newest kernel.
func TestCLATNewest(t *testing.T) { clatWorks(t, "supervise", "rawip", "linux-7.3") }

func clatWorks(t *testing.T, engine, link, stack string) {
	t.Helper()
	if strings.HasPrefix(stack, "linux-") {
		kit.Need(t, filepath.Join(filepath.Dir(kit.Bin("lklrun")), "stacks", stack, "liblkl.so"))
	}
	s := newOnly6(t, link == "rawip")
	s.raw = link == "raw"
	s.advertise(pref64(nat64Prefix, time.Hour))
	before := kit.Take(t, s.router)
	run := func(args ...string) kit.Result {
		flags := []string{"--name", kit.NewName(), "--engine", engine, "--stack", stack, "--if", s.uplink(), "--if", "clat", "--"}
		return kit.Run(t, kit.Limit, kit.Lklrun(append(flags, args...)...))
	}
	const note = "lklrun: eth1: IPv4 goes through the NAT64 " + nat64Prefix + " of eth0\n"
	if r := run("/usr/bin/python3", "-c", ipv4Program, server4); r.Status != 0 || r.Stdout != ipv4Output || r.Stderr != note {
		t.Errorf("python: %v", r)
	}
	if r := run("curl", "-sS", "-m", "20", "http://"+server4+"/hello"); r.Stdout != "hello\n" {
		t.Errorf("curl: %v", r)
	}
	if engine == "supervise" { // a static program
		if r := run(kit.Probe(), "get", "http://"+server4+"/hello"); r.Stdout != "hello\n" {
			t.Errorf("a static Go program: %v", r)
		}
	}
	before.Same()
}

// clat starts a run with clat in the network. Its program executes commands of the test.
func (s *only6) clat(flags ...string) *kit.Talker {
	s.Helper()
	name := kit.NewName()
	flags = append([]string{"--name", name, "--if", s.uplink(), "--if", "clat"}, flags...)
	k := kit.StartTalker(s.T, name, kit.Lklrun(append(flags, "--", "/usr/bin/python3", "-uc", kit.TalkerProgram)...))
	k.Say("'started'")
	return k
}

// fetch runs curl to the IPv4 server in a run and returns its output.
func fetch(k *kit.Talker) string {
	r := kit.Run(k.T, kit.Limit, k.Inside("curl", "-sS", "-m", "20", "http://"+server4+"/hello"))
	return r.Stdout + r.Stderr
}

// TestCLATNames finds the prefix by DNS, in a network whose router does not announce it.
func TestCLATNames(t *testing.T) {
	kit.Need(t, "dnsmasq")
	s := newOnly6(t, false)
	kit.Start(t, s.router.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file=", "--user=root",
		"--log-facility=-", "--host-record=ipv4only.arpa,2001:db8:64::c000:aa", "--host-record=ipv4only.arpa,192.0.0.170"))
	kit.WaitFor(t, "the name server", kit.Limit, func() bool { return s.router.Listening(t, "u", 53) })
	s.advertise(rdnss("2001:db8:1::1"))
	r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", s.uplink(), "--if", "clat", "--", "curl", "-sS", "-m", "20", "http://"+server4+"/hello"))
	if want := "lklrun: eth1: IPv4 goes through the NAT64 " + nat64Prefix + " of eth0\n"; r.Stdout != "hello\n" || r.Stderr != want {
		t.Errorf("%v", r)
	}
}

// TestCLATChanges starts in a network without NAT64. IPv4 then fails at once. It works as long
// as the router announces a prefix.
func TestCLATChanges(t *testing.T) {
	s := newOnly6(t, false)
	send := s.advertise()
	k := s.clat()
	refused := func(when string) {
		t.Helper()
		began := time.Now()
		if got := fetch(k); !strings.Contains(got, "Couldn't connect") || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %q after %v", when, got, time.Since(began))
		}
	}
	refused("without a prefix")
	send(pref64(nat64Prefix, time.Hour))
	kit.WaitFor(t, "IPv4", kit.Limit, func() bool { return fetch(k) == "hello\n" })
	out := kit.Lklctl(t, "-n", k.Name, "link")
	if !regexp.MustCompile(`(?m)^eth1 .*clat .*192\.0\.0\.1/32`).MatchString(out) {
		t.Errorf("lklctl link:\n%s", out)
	}
	kit.Lklctl(t, "-n", k.Name, "link", "del", "eth1")
	refused("without the interface")
	if got := kit.Lklctl(t, "-n", k.Name, "sysctl", "net.ipv6.conf.all.forwarding"); !strings.HasSuffix(strings.TrimSpace(got), "0") {
		t.Errorf("forwarding stays on: %s", got)
	}
	kit.Lklctl(t, "-n", k.Name, "link", "add", "clat:"+nat64Prefix)
	kit.WaitFor(t, "IPv4 through the new interface", kit.Limit, func() bool { return fetch(k) == "hello\n" })
	if r := k.End(); !strings.Contains(r.Stderr, "eth1: the network of eth0 has no NAT64 prefix") || !strings.Contains(r.Stderr, "eth1: IPv4 goes through the NAT64 "+nat64Prefix) {
		t.Errorf("the run: %v", r)
	}
}

// TestCLATWithdrawn checks that IPv4 ends with the announcement.
func TestCLATWithdrawn(t *testing.T) {
	s := newOnly6(t, true)
	send := s.advertise(pref64(nat64Prefix, time.Hour))
	k := s.clat()
	if got := fetch(k); got != "hello\n" {
		t.Fatalf("%q", got)
	}
	send(pref64(nat64Prefix, 0))
	kit.WaitFor(t, "the end of IPv4", kit.Limit, func() bool { return strings.Contains(fetch(k), "Couldn't connect") })
	if r := k.End(); !strings.Contains(r.Stderr, "IPv4 does not work until there is one") {
		t.Errorf("the run: %v", r)
	}
}

// TestCLATForwarding checks that a stack with clat does not forward the packets of its
// neighbours. With forwarding turned on by the user, it does.
func TestCLATForwarding(t *testing.T) {
	s := newOnly6(t, false)
	s.advertise(pref64(nat64Prefix, time.Hour))
	behind := kit.NewNetns(t, "behind")
	kit.Veth(t, kit.Host, "v1", behind, "b0")
	behind.Addr(t, "b0", "2001:db8:2::1/64")
	behind.Run(t, "ip", "route", "add", "default", "via", "2001:db8:2::2")
	for _, forwards := range []bool{false, true} {
		flags := []string{"--if", "macvtap:v1,ip6=2001:db8:2::2/64"}
		if forwards {
			flags = append(flags, "--sysctl", "net.ipv6.conf.all.forwarding=1")
		}
		k := s.clat(flags...)
		if got := fetch(k); got != "hello\n" {
			t.Errorf("IPv4: %q", got)
		}
		addr := regexp.MustCompile(`2001:db8:1:[0-9a-f:]+`).FindString(kit.Lklctl(t, "-n", k.Name, "addr"))
		s.router.Run(t, "ip", "route", "replace", "2001:db8:2::/64", "via", addr)
		tries := "2"
		r := kit.Run(t, kit.Limit, s.router.Command("ping", "-c", tries, "-W", "1", "2001:db8:2::1"))
		if (r.Status == 0) != forwards {
			t.Errorf("forwarding %v: %v", forwards, r)
		}
		k.End()
	}
}
