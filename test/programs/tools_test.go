// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// A toolbox is a stack on which network tools run, one after the other.
type toolbox struct {
	*kit.Talker
	site *kit.Site
	mac  string // of the stack's eth0
	dir  string // for the tools' files
}

// newToolbox starts a stack on the site's tap.
func newToolbox(t *testing.T, flags ...string) *toolbox {
	t.Helper()
	kit.Need(t, "ip", "ss", "tc", "/usr/libexec/mptcpd", "nstat", "ping", "tcpdump", "ethtool", "nft", "iptables-legacy", "ifconfig", "netstat", "route", "arp")
	s := kit.NewSite(t)
	b := &toolbox{site: s, dir: kit.Dir(t)}
	b.Talker = s.Talk(append([]string{"-q", "--if", s.TapIf()}, flags...)...)
	b.Say("1") // wait until the target runs
	b.mac = strings.TrimSpace(kit.Lklctl(t, "-n", b.Name, "cat", "/sys/class/net/eth0/address"))
	return b
}

// run runs a tool, which must succeed, and returns its output.
func (b *toolbox) run(args ...string) string {
	b.T.Helper()
	cmd := b.Inside(args...)
	cmd.Env = append(os.Environ(), "NSTAT_HISTORY="+filepath.Join(b.dir, "nstat"))
	return kit.OK(b.T, kit.Limit, cmd)
}

// has checks that the output of a tool contains all of want, and nothing of the host's
// devices.
func (b *toolbox) has(t *testing.T, said string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !regexp.MustCompile(`(?m)` + w).MatchString(said) {
			t.Errorf("does not say %q", w)
		}
	}
	if regexp.MustCompile(`\b(br0|tap0|v0)\b`).MatchString(said) {
		t.Error("speaks of the host's devices")
	}
	if t.Failed() {
		t.Fatal(said)
	}
}

// counter returns one of the stack's counters, as the stack itself reports it.
func (b *toolbox) counter(name string) int {
	b.T.Helper()
	text := kit.Lklctl(b.T, "-n", b.Name, "counters", name)
	m := regexp.MustCompile(`(?m)^` + name + `\s+(\d+)`).FindStringSubmatch(text)
	if m == nil {
		b.T.Fatalf("no counter %s: %s", name, text)
	}
	n, _ := strconv.Atoi(m[1]) // m[1] contains digits only
	return n
}

// TestTools checks that the unmodified network tools show the stack: its addresses, its
// sockets, its counters. They must show nothing of the host.
func TestTools(t *testing.T) {
	b := newToolbox(t)
	b.site.Web(kit.Nginx{})
	addr, server := regexp.QuoteMeta(kit.StackAddr), regexp.QuoteMeta(kit.ServerAddr)
	if got := b.Say(`keep.__setitem__("c", socket.create_connection((%q, 80), 10))`, kit.ServerAddr); got != "None" {
		t.Fatalf("connecting: %s", got)
	}
	for _, c := range []struct {
		line string
		want []string
	}{
		{"ip addr", []string{`inet ` + addr + `/24 .*eth0`, `inet6 fd73::10/64`, `link/ether ` + b.mac}},
		{"ip -s -d link", []string{`^2: eth0: .*mtu 1500`, `link/ether ` + b.mac}},
		{"ip mptcp endpoint show", []string{`^` + addr + ` id 1 subflow dev eth0`}},
		{"ip rule", []string{`from ` + addr + ` lookup 100`}},
		{"ip neigh", []string{`^` + server + ` dev eth0 lladdr`}},
		{"ip maddr show dev eth0", []string{`inet  224\.0\.0\.1`}},
		{"ss -tinpM", []string{`^mptcp +ESTAB .* ` + addr + `:\d+ +` + server + `:80`, `^tcp +ESTAB .* ` + addr + `.*:\d+ +` + server + `:80`, `remote_key|token:`, `users:\(\("python3",pid=\d+,fd=3\)\)`, `cwnd:10`}},
		{"ss -s", []string{`^TCP: +\d+ \(estab 1`}},
		{"tc -s qdisc", []string{`^qdisc \w+ .* dev eth0 root`, `Sent [1-9]\d* bytes [1-9]\d* pkt`}},
		{"ethtool -k eth0", []string{`^Features for eth0:`, `tx-checksumming: on`, `generic-receive-offload: on`}},
		{"ethtool -i eth0", []string{`^driver: lkl$`, `^version: 6\.\d+`}},
		{"ethtool eth0", []string{`Link detected: yes`}},
		{"ethtool -P eth0", []string{`: ` + b.mac}},
		{"ifconfig", []string{`^eth0: .*mtu 1500`, `inet ` + addr + ` +netmask 255\.255\.255\.0`, `inet6 fd73::10 `, `ether ` + b.mac, `^lo: `}},
		{"netstat -rn", []string{`^10\.73\.0\.0 +0\.0\.0\.0 +255\.255\.255\.0 .*eth0`}},
		{"netstat -tnp", []string{`^tcp .* ` + addr + `:\d+ +` + server + `:80 +ESTABLISHED \d+/python3`}},
		{"netstat -i", []string{`^eth0 +1500 +[1-9]`}},
		{"route -n", []string{`^10\.73\.0\.0 +0\.0\.0\.0 +255\.255\.255\.0 .*eth0`}},
		{"arp -n", []string{`^` + server + ` +ether `}},
		{"ping -n -c 3 -i 0.01 " + kit.ServerAddr, []string{`3 received, 0% packet loss`}},
		{"ping -n -c 1 " + kit.ServerAddr6, []string{`1 received, 0% packet loss`}},
		{"ping -n -c 1 " + kit.StackAddr, []string{`1 received, 0% packet loss`}}, // the address has no duplicate
		{"ping -n -c 1 ::1", []string{`1 received, 0% packet loss`}},
	} {
		t.Run(c.line, func(t *testing.T) { b.has(t, b.run(strings.Fields(c.line)...), c.want...) })
	}

	t.Run("ip -j route", func(t *testing.T) {
		var routes []struct{ Dst, Dev, Prefsrc string }
		text := b.run("ip", "-j", "route")
		if err := json.Unmarshal([]byte(text), &routes); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(routes) != 1 || routes[0].Dst != "10.73.0.0/24" || routes[0].Dev != "eth0" || routes[0].Prefsrc != kit.StackAddr {
			t.Errorf("routes: %s", text)
		}
	})
	t.Run("counters", func(t *testing.T) {
		b.run("ping", "-n", "-c", "5", "-i", "0.01", kit.ServerAddr)
		n := b.counter("IcmpOutEchos")
		if n < 9 {
			t.Errorf("%d echo requests in the stack, want 9 at least", n)
		}
		b.has(t, b.run("nstat", "-az"), fmt.Sprintf(`^IcmpOutEchos +%d `, n), `^MPTcpExtMPCapableSYNTX +1 `)
		b.has(t, b.run("netstat", "-s"), `^Icmp:`, fmt.Sprintf(`echo requests?: %d$`, n))
	})
	t.Run("ip mptcp monitor", func(t *testing.T) {
		p := kit.Start(t, b.Inside("ip", "mptcp", "monitor"))
		kit.WaitFor(t, "ip mptcp monitor", kit.Limit, func() bool { // ip does not report when it starts to listen
			b.Connect("m", kit.ServerAddr, 80)
			out, _ := p.Output()
			return regexp.MustCompile(`\[ +\w+\] token=`).MatchString(out)
		})
		p.Signal(syscall.SIGINT)
		p.Wait(kit.Limit)
	})
	t.Run("mptcpd", func(t *testing.T) {
		p := kit.Start(t, b.Inside("/usr/libexec/mptcpd", "--log=stderr", "--path-manager=addr_adv"))
		kit.WaitFor(t, "mptcpd", kit.Limit, func() bool {
			_, errs := p.Output()
			return strings.Contains(errs, "address advertiser path manager initialized")
		})
		n := 0
		kit.WaitFor(t, "an endpoint for a new address", kit.Limit, func() bool {
			n++
			b.run("ip", "addr", "add", fmt.Sprintf("10.73.1.%d/32", n%250), "dev", "eth0")
			return strings.Contains(b.run("ip", "mptcp", "endpoint", "show"), "10.73.1.")
		})
		p.Signal(syscall.SIGTERM)
		p.Wait(kit.Limit)
	})
	t.Run("tcpdump", func(t *testing.T) {
		c := kit.StartTcpdump(t, b.Inside("tcpdump", "-n", "-i", "eth0", "-c", "5"))
		b.run("ping", "-n", "-c", "3", "-i", "0.01", kit.ServerAddr)
		if r := c.Proc.Wait(kit.Limit); r.Status != 0 || !strings.Contains(r.Stdout, "IP "+kit.StackAddr+" > "+kit.ServerAddr+": ICMP echo request") {
			t.Errorf("tcpdump -c 5: %v", r)
		}
	})
	b.End()
}

// TestToolsChange checks that the tools' changes apply to the stack, and only there.
func TestToolsChange(t *testing.T) {
	b := newToolbox(t, "--stack", "vanilla")
	b.site.Web(kit.Nginx{})
	t.Run("ifconfig, route, arp", func(t *testing.T) {
		b.run("ip", "link", "add", "d0", "type", "dummy")
		b.run("ifconfig", "d0", "10.76.0.1", "netmask", "255.255.0.0", "up")
		b.run("ifconfig", "d0", "hw", "ether", "02:00:00:00:00:99")
		b.run("ifconfig", "d0", "mtu", "1400", "txqueuelen", "77")
		b.run("ifconfig", "d0", "add", "fd76::1/64")
		b.run("route", "add", "-net", "10.77.0.0/16", "gw", "10.76.0.2")
		b.run("route", "add", "-net", "10.78.0.0/16", "dev", "d0")
		b.run("route", "-A", "inet6", "add", "fd77::/64", "gw", "fd76::2")
		b.run("arp", "-i", "eth0", "-s", "10.73.0.99", "02:00:00:00:00:98")
		b.has(t, b.run("ip", "addr", "show", "d0"), `mtu 1400`, `qlen 77`, `ether 02:00:00:00:00:99`, `inet 10\.76\.0\.1/16`, `inet6 fd76::1/64`)
		b.has(t, b.run("ip", "route"), `^10\.77\.0\.0/16 via 10\.76\.0\.2 dev d0`, `^10\.78\.0\.0/16 dev d0`)
		b.has(t, b.run("ip", "-6", "route"), `^fd77::/64 via fd76::2 dev d0`)
		b.has(t, b.run("ip", "neigh"), `^10\.73\.0\.99 dev eth0 lladdr 02:00:00:00:00:98 PERMANENT`)
		b.run("arp", "-i", "eth0", "-d", "10.73.0.99")
		b.run("route", "del", "-net", "10.77.0.0/16")
		b.run("ifconfig", "d0", "down")
		if got := b.run("ip", "route"); strings.Contains(got, "d0") {
			t.Errorf("routes of a device that is down: %s", got)
		}
	})
	t.Run("ethtool", func(t *testing.T) {
		b.run("ethtool", "-K", "eth0", "gro", "off")
		b.has(t, b.run("ethtool", "-k", "eth0"), `generic-receive-offload: off`)
		r := kit.Run(t, kit.Limit, b.Inside("ethtool", "-i", "nosuch"))
		if r.Status == 0 || !strings.Contains(r.Stderr, "No such device") {
			t.Errorf("a device that is not: %v", r)
		}
	})
	t.Run("tc", func(t *testing.T) {
		b.run("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "50ms")
		b.has(t, b.run("tc", "-s", "qdisc"), `netem .* dev eth0 root .* delay 50ms`)
		out := b.run("ping", "-n", "-c", "1", kit.ServerAddr)
		m := regexp.MustCompile(`time=([\d.]+) ms`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("ping: %s", out)
		}
		if ms, _ := strconv.ParseFloat(m[1], 64); ms < 50 {
			t.Errorf("with a delay of 50 ms: %s", out)
		}
		b.run("tc", "qdisc", "del", "dev", "eth0", "root")
	})
	t.Run("ip link add", func(t *testing.T) {
		for _, args := range []string{"v1 type veth peer name v2", "eth0.5 link eth0 type vlan id 5", "bridge0 type bridge"} {
			b.run(append([]string{"ip", "link", "add"}, strings.Fields(args)...)...)
		}
		for _, args := range []string{"type vrf table 10", "type bond mode 802.3ad", "type vxlan id 5 dstport 4789 local 10.0.1.1", "type geneve id 5 remote 10.0.1.2", "type gre local 10.0.1.1 remote 10.0.1.2", "type ip6tnl", "link eth0 type ipvlan", "type wireguard"} {
			b.run(append([]string{"ip", "link", "add", "t9"}, strings.Fields(args)...)...)
			b.run("ip", "link", "del", "t9")
		}
		for _, mrt := range []string{"AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP).setsockopt(socket.IPPROTO_IP", "AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6).setsockopt(socket.IPPROTO_IPV6"} { // MRT_INIT, MRT6_INIT
			if got := b.Say("socket.socket(socket.%s, 200, 1)", mrt); got != "None" {
				t.Errorf("multicast routing by %s: %s", mrt, got)
			}
		}
		b.run("ip", "link", "set", "v1", "master", "bridge0")
		b.has(t, b.run("bridge", "link"), `v1@v2: .* master bridge0`)
		private := `__import__("fcntl").ioctl(socket.socket(socket.AF_%s), 0x89f0, b"bridge0".ljust(16, bytes(1)) + bytes(24))`
		for _, family := range []string{"UNIX", "INET"} { // the ioctl's argument points to memory that may contain further pointers
			if got := b.Say(private, family); got != "OSError [Errno 25] Inappropriate ioctl for device" {
				t.Errorf("a bridge's private request on AF_%s: %s", family, got)
			}
		}
		if got := b.Say(`__import__("fcntl").ioctl(socket.socket(socket.AF_UNIX), 0x8b01, b"eth0".ljust(32, bytes(1)))`); !strings.HasPrefix(got, "OSError [Errno 95]") {
			t.Errorf("eth0 is asked for its wireless name: %s", got)
		}
		b.has(t, b.run("cat", "/proc/net/vlan/config"), `eth0\.5 +\| 5 +\| eth0`)
	})
	t.Run("nft", func(t *testing.T) {
		rules := filepath.Join(b.dir, "rules")
		text := "table inet lklrun_t {\n chain c {\n type filter hook output priority 0;\n icmp type echo-request counter drop\n }\n}\n"
		kit.WriteFile(t, rules, text)
		b.run("nft", "-f", rules)
		if r := kit.Run(t, kit.Limit, b.Inside("ping", "-n", "-c", "1", "-W", "1", kit.ServerAddr)); r.Status != 1 {
			t.Errorf("ping in spite of a rule: %v", r)
		}
		b.has(t, b.run("nft", "list", "ruleset"), `table inet lklrun_t`, `echo-request counter packets 1 bytes 84 drop`)
		if host := kit.Host.Run(t, "nft", "list", "ruleset"); strings.Contains(host, "lklrun_t") {
			t.Errorf("the rule is the host's: %s", host)
		}
		b.run("nft", "flush", "ruleset")
		b.run("ping", "-n", "-c", "1", kit.ServerAddr)
	})
	for _, iptables := range []string{"iptables-legacy", "iptables-nft"} {
		t.Run(iptables, func(t *testing.T) {
			b.run(iptables, "-A", "OUTPUT", "-p", "tcp", "--dport", "80", "-j", "REJECT")
			if got := b.Say(`socket.socket().connect_ex((%q, 80))`, kit.ServerAddr); got != strconv.Itoa(int(syscall.ECONNREFUSED)) {
				t.Errorf("connecting in spite of a rule: %s", got)
			}
			b.has(t, b.run(iptables, "-vnL", "OUTPUT"), `^ +1 +60 REJECT .* dpt:80`)
			b.run(iptables, "-F", "OUTPUT")
			if got := b.Say(`socket.socket().connect_ex((%q, 80))`, kit.ServerAddr); got != "0" {
				t.Errorf("connecting: %s", got)
			}
		})
	}
	t.Run("iptables-restore", func(t *testing.T) {
		text := "*filter\n"
		for i := range 1000 { // more data than other socket options accept
			text += fmt.Sprintf("-A INPUT -s 10.%d.%d.0/24 -j DROP\n", 100+i>>8, i&255)
		}
		cmd := b.Inside("iptables-legacy-restore")
		cmd.Stdin = strings.NewReader(text + "COMMIT\n")
		kit.OK(t, kit.Limit, cmd)
		if got := strings.Count(b.run("iptables-legacy-save"), "-A INPUT"); got != 1000 {
			t.Errorf("%d rules of 1000", got)
		}
	})
	t.Run("ss -K", func(t *testing.T) {
		b.Connect("c", kit.ServerAddr, 80)
		b.run("ss", "-K", "dst", kit.ServerAddr)
		if got := b.Say(`keep["c"].recv(1)`); !strings.HasPrefix(got, "Connection") {
			t.Errorf("reading from a connection that ss has killed: %s", got)
		}
	})
	t.Run("netlink", func(t *testing.T) {
		b.Say(`keep.__setitem__("n", socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))`)
		b.Say(`(keep["n"].bind((0, 0x10)), keep["n"].setsockopt(270, 3, 1), keep["n"].settimeout(20))`) // RTMGRP_IPV4_IFADDR, NETLINK_PKTINFO
		b.run("ip", "addr", "add", "10.80.0.1/32", "dev", "lo")
		if got := b.Say(`keep["n"].recvmsg(65536, 100)[1:]`); got != `([(270, 3, b'\x05\x00\x00\x00')], 0, (0, 16))` {
			t.Errorf("news of an address came with %s", got)
		}
	})
	t.Run("ip monitor", func(t *testing.T) {
		p := kit.Start(t, b.Inside("ip", "monitor", "address"))
		n := 0
		kit.WaitFor(t, "ip monitor", kit.Limit, func() bool { // ip does not report when it starts to listen
			n++
			b.run("ip", "addr", "add", fmt.Sprintf("10.79.%d.1/32", n%250), "dev", "lo")
			out, _ := p.Output()
			return strings.Contains(out, "inet 10.79.")
		})
		p.Signal(syscall.SIGINT)
		p.Wait(kit.Limit)
	})
	b.End()
}

// TestTraceroute checks that traceroute, with several methods, and tracepath find the
// routers on a path. They find them by the errors that routers send.
func TestTraceroute(t *testing.T) {
	kit.Need(t, "traceroute", "tracepath")
	s := kit.NewSite(t)
	far := kit.NewNetns(t, "far")
	kit.Veth(t, s.Server, "f0", far, "f1")
	s.Server.Addr(t, "f0", "10.81.0.1/24")
	far.Addr(t, "f1", "10.81.0.2/24")
	far.Run(t, "ip", "route", "add", "default", "via", "10.81.0.1")
	s.Server.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	for _, n := range []*kit.Netns{s.Server, far} { // otherwise they send an error only once per second
		n.Run(t, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0")
	}
	k := s.Talk("-q", "--stack", "vanilla", "--if", s.TapIf()+",gw="+kit.ServerAddr)
	k.Say("1") // wait until the target runs
	for _, line := range []string{"traceroute -n -w 5,0,0 10.81.0.2", "traceroute -n -w 5,0,0 -I 10.81.0.2", "traceroute -n -w 5,0,0 -U 10.81.0.2", "tracepath -n 10.81.0.2"} {
		got := kit.OK(t, kit.Limit, k.Inside(strings.Fields(line)...))
		for _, hop := range []string{`(?m)^ *1:? .*\b10\.73\.0\.1 `, `(?m)^ *2:? .*\b10\.81\.0\.2 `} {
			if !regexp.MustCompile(hop).MatchString(got) {
				t.Errorf("%s misses %q:\n%s", line, hop, got)
			}
		}
	}
	k.End()
}
