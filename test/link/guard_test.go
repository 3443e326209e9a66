// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/test/kit"
)

// The addresses that host and stack share, and the addresses of their peer.
const (
	sharedAddr, sharedAddr6 = "10.91.0.2", "fd91::2"
	peerAddr, peerAddr6     = "10.91.0.1", "fd91::1"
)

// A share is a host whose addresses the stack shares, and a peer:
//
//	here: v0 10.91.0.2 ─── v1 10.91.0.1 :peer	raw:v0
//	here: t0 10.91.0.2 ─── t1 10.91.0.1 :peer	rawip:t0, two tuns
type share struct {
	*testing.T
	here, peer *kit.Netns
	flag       string
	as         []string // prefix of lklrun's command line; if empty, lklrun runs as this process
}

func newShare(t *testing.T, typ string) *share {
	t.Helper()
	kit.Need(t, "ip", "nft", "iptables", "ip6tables", "iptables-legacy", "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklctl"), kit.Bin("lklhost"))
	s := &share{T: t, here: kit.NewNetns(t, "here"), peer: kit.NewNetns(t, "peer")}
	here, peer := "v0", "v1"
	s.flag = "raw:v0"
	if typ == "rawip" {
		here, peer, s.flag = "t0", "t1", "rawip:t0"
		stop := kit.CarryFrames(kit.OpenTun(t, s.here, here, unix.IFF_TUN|unix.IFF_NO_PI), kit.OpenTun(t, s.peer, peer, unix.IFF_TUN|unix.IFF_NO_PI))
		t.Cleanup(stop)
		s.here.Run(t, "ip", "link", "set", here, "up", "txqueuelen", "5000")
		s.peer.Run(t, "ip", "link", "set", peer, "up", "txqueuelen", "5000")
	} else {
		kit.Veth(t, s.here, here, s.peer, peer)
	}
	s.here.Addr(t, here, sharedAddr+"/24", sharedAddr6+"/64")
	s.peer.Addr(t, peer, peerAddr+"/24", peerAddr6+"/64")
	// The administrator's own settings and rules.
	s.here.Run(t, "sysctl", "-qw", "net.ipv4.ip_local_reserved_ports=2000,50000-50100", "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")
	s.here.Run(t, "nft", "add table inet admin; add chain inet admin in { type filter hook input priority 0; }; add rule inet admin in tcp dport 9999 counter drop")
	s.here.Run(t, "iptables", "-A", "INPUT", "-p", "tcp", "--dport", "9998", "-j", "DROP")
	return s
}

// rules returns the host's firewall rules without their counters, and the reserved
// ports.
func (s *share) rules() string {
	s.Helper()
	text := s.here.Run(s, "sh", "-ec", "cat /proc/sys/net/ipv4/ip_local_reserved_ports; for c in 'nft list ruleset' iptables-save ip6tables-save iptables-legacy-save ip6tables-legacy-save; do $c; done")
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
	return regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+`).ReplaceAllString(text, "")
}

// args is a command line of lklrun on the host.
func (s *share) args(args ...string) []string {
	return append([]string{kit.Bin("lklrun")}, args...)
}

// run starts a talker on the shared address.
func (s *share) run(flags ...string) *kit.Talker {
	s.Helper()
	name := kit.NewName()
	script := kit.TestData("guard.py")
	args := []string{kit.Bin("lklrun")}
	if len(s.as) > 0 {
		args, script = slices.Clone(s.as), public(s.T, script)
	}
	args = append(append(args, "--name", name, "--if", s.flag), flags...)
	args = append(args, "--", "/usr/bin/python3", "-u", script)
	return kit.StartTalker(s.T, name, s.here.Command(args...))
}

// echoes opens connections from a namespace and uses all of them.
func (s *share) echoes(n *kit.Netns, address string, count int) {
	s.Helper()
	err := n.Enter(func() error {
		var all []net.Conn
		for range count {
			c, err := net.DialTimeout("tcp", address, kit.Limit)
			if err != nil {
				return err
			}
			defer c.Close()
			all = append(all, c)
		}
		for i, c := range all {
			want := fmt.Sprint("connection ", i)
			if err := c.SetDeadline(time.Now().Add(kit.Limit)); err != nil {
				return err
			}
			if _, err := io.WriteString(c, want); err != nil {
				return err
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil {
				return err
			}
			if string(got) != want {
				return fmt.Errorf("%q came back as %q", want, got)
			}
		}
		return nil
	})
	if err != nil {
		s.Errorf("%s at %s: %v", n.Name, address, err)
	}
}

// refuses checks that the host answers with a reset at a port without a listener.
func (s *share) refuses() {
	s.Helper()
	for _, address := range []string{sharedAddr + ":9", "[" + sharedAddr6 + "]:9"} {
		err := s.peer.Enter(func() error {
			c, err := net.DialTimeout("tcp", address, kit.Limit)
			if err == nil {
				c.Close()
			}
			return err
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			s.Errorf("the host's answer at %s: %v", address, err)
		}
	}
}

// resets returns the number of resets that the host has sent.
func (s *share) resets() int {
	s.Helper()
	lines := strings.Split(s.here.Run(s, "grep", "^Tcp:", "/proc/net/snmp"), "\n")
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	for i, n := range names {
		if n == "OutRsts" {
			var v int
			if _, err := fmt.Sscan(values[i], &v); err != nil {
				s.Fatal(err)
			}
			return v
		}
	}
	s.Fatal("no OutRsts")
	return 0
}

func guardStatus(k *kit.Talker) guard.Status {
	k.T.Helper()
	var st guard.Status
	if err := json.Unmarshal([]byte(kit.Lklctl(k.T, "-n", k.Name, "-o", "json", "guard")), &st); err != nil {
		k.T.Fatal(err)
	}
	return st
}

// TestSharedAddress checks that stack and host can use the same address independently. A
// thousand connections of the stack, and its server, must see no reset. The host must
// still send the resets for its own ports.
func TestSharedAddress(t *testing.T) {
	before := kit.Take(t)
	t.Cleanup(func() { before.Settles(kit.Limit) })
	for _, c := range []struct{ typ, engine, backend string }{
		{"raw", "supervise", "nft"},
		{"rawip", "preload", "nft"},
		{"raw", "preload", "iptables"},
		{"rawip", "supervise", "iptables"},
	} {
		t.Run(c.typ+", "+c.engine+", "+c.backend, func(t *testing.T) {
			t.Parallel()
			s := newShare(t, c.typ)
			was := s.rules()
			s.peer.EchoTCP(t, ":7")
			s.here.EchoTCP(t, ":22")
			s.peer.EchoUDP(t, ":7")
			k := s.run("--engine", c.engine, "--rst-guard", c.backend, "--listen", "8080")
			if got := k.Say("serve(8080)"); got != "None" {
				t.Fatal(got)
			}
			resets := s.resets()
			for _, addr := range []string{peerAddr, peerAddr6} {
				if got := k.Say("crowd(%q, 7, 1000)", addr); !strings.HasPrefix(got, "'1000, ports ") {
					t.Errorf("to %s: %s", addr, got)
				}
				if got := k.Say("udp(%q, 7)", addr); got != "b'hello'" {
					t.Errorf("UDP to %s: %s", addr, got)
				}
			}
			for _, addr := range []string{sharedAddr, "[" + sharedAddr6 + "]"} {
				s.echoes(s.peer, addr+":8080", 200) // the stack's server
				s.echoes(s.peer, addr+":22", 20)    // the host's server
			}
			for _, addr := range []string{peerAddr, "[" + peerAddr6 + "]"} {
				s.echoes(s.here, addr+":7", 50)
			}
			if now := s.resets(); now != resets {
				t.Errorf("the host has sent %d resets", now-resets)
			}
			s.refuses()
			if now := s.resets(); now != resets+2 {
				t.Errorf("the host has sent %d resets for two closed ports", now-resets)
			}

			// The guard drops packets from ports of the host. The program may choose a
			// port of the run.
			st := guardStatus(k)
			for _, addr := range []string{peerAddr, peerAddr6} {
				for _, b := range []struct {
					kind, want string
					port       int
				}{
					{"STREAM", "'EHOSTUNREACH'", 123}, {"DGRAM", "'EPERM'", 123},
					{"STREAM", "b'hello'", int(st.Ports.First) + 77}, {"DGRAM", "b'hello'", int(st.Ports.First) + 77},
				} {
					want := b.want
					if addr == peerAddr6 && b.want == "'EHOSTUNREACH'" {
						want = "'EACCES'"
					}
					if got := k.Say("bound(%q, 7, socket.SOCK_%s, %d)", addr, b.kind, b.port); got != want {
						t.Errorf("%s to %s from port %d: %s, want %s", b.kind, addr, b.port, got, want)
					}
				}
			}
			if !strings.HasPrefix(string(st.Method), c.backend) || st.Kept.Packets < 4000 || st.Ports.Last-st.Ports.First != 4095 {
				t.Errorf("%+v", st)
			}
			if got := k.Say("crowd(%q, 7, 1)", peerAddr); !strings.Contains(got, fmt.Sprintf("ports %d", st.Ports.First/10000)) {
				t.Errorf("%s of %v", got, st.Ports)
			}
			// A connection that ends while the guard's rules are missing may be reset.
			if got := k.Say("quiet()"); got != "[]" {
				t.Errorf("connections that do not end: %s", got)
			}
			s.here.Run(t, "nft", "flush", "ruleset") // includes the rules of iptables
			kit.WaitFor(t, "the rules come back", kit.Limit, func() bool { return guardStatus(k).Restored == 1 })
			resets = s.resets()
			if got := k.Say("crowd(%q, 7, 100)", peerAddr); !strings.HasPrefix(got, "'100, ") {
				t.Error(got)
			}
			if now := s.resets(); now != resets {
				t.Errorf("the host has sent %d resets", now-resets)
			}
			r := k.End()
			if r.Status != 0 || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, "has restored the rules") {
				t.Errorf("%v", r)
			}
			s.here.Run(t, "nft", "add table inet admin; add chain inet admin in { type filter hook input priority 0; }; add rule inet admin in tcp dport 9999 counter drop")
			s.here.Run(t, "iptables", "-A", "INPUT", "-p", "tcp", "--dport", "9998", "-j", "DROP")
			if now := s.rules(); now != was {
				t.Errorf("the rules were\n%s\nand are\n%s", was, now)
			}
		})
	}
}

// TestSharedUnguarded checks that the host sends resets without the guard, and that
// only the guard prevents them.
func TestSharedUnguarded(t *testing.T) {
	s := newShare(t, "raw")
	was := s.rules()
	s.peer.EchoTCP(t, ":7")
	k := s.run("--rst-guard", "off")
	resets := s.resets()
	if got := k.Say("crowd(%q, 7, 20)", peerAddr); strings.HasPrefix(got, "'20, ") {
		t.Errorf("no connection was lost: %s", got)
	}
	if now := s.resets(); now == resets {
		t.Error("the host has sent no reset")
	}
	if st := guardStatus(k); st.Mode != "off" || st.Method != "" || len(st.Links) != 1 {
		t.Errorf("%+v", st)
	}
	k.End()
	if now := s.rules(); now != was {
		t.Errorf("the rules were\n%s\nand are\n%s", was, now)
	}
}

// TestSharedByTwo checks that two runs on one address use different ports.
func TestSharedByTwo(t *testing.T) {
	s := newShare(t, "raw")
	was := s.rules()
	s.peer.EchoTCP(t, ":7")
	a, b := s.run("--port-range", "1024"), s.run("--rst-guard", "iptables")
	for _, k := range []*kit.Talker{a, b, a} {
		if got := k.Say("crowd(%q, 7, 200)", peerAddr); !strings.HasPrefix(got, "'200, ") {
			t.Error(got)
		}
	}
	p, q := guardStatus(a).Ports, guardStatus(b).Ports
	if p.First <= q.Last && q.First <= p.Last || p.Last-p.First != 1023 {
		t.Errorf("%v and %v", p, q)
	}
	r := kit.Run(t, kit.Limit, s.here.Command(s.args("--if", s.flag, "--port-range", fmt.Sprintf("%d-%d", p.First, p.First+99), "--", "true")...))
	kit.OneLine(t, r, 2, "another run uses port")
	a.End()
	if got := b.Say("crowd(%q, 7, 200)", peerAddr); !strings.HasPrefix(got, "'200, ") {
		t.Error(got)
	}
	b.End()
	if now := s.rules(); now != was {
		t.Errorf("the rules were\n%s\nand are\n%s", was, now)
	}
}

// TestSharedUsedUp checks that a used-up port range is available again within seconds.
// Normally, the port of a closed connection is unavailable for a minute.
func TestSharedUsedUp(t *testing.T) {
	s := newShare(t, "raw")
	s.peer.EchoTCP(t, ":7")
	k := s.run("--port-range", "64")
	for range 3 {
		began := time.Now()
		if got := k.Say("fill(%q, 7, 64)", peerAddr); got != "64" {
			t.Fatalf("connections at once from 64 ports: %s", got)
		}
		took := time.Since(began)
		t.Log(took)
		if took > kit.Limit {
			t.Errorf("64 ports were to be had after %v: a connection's waits a minute", took)
		}
	}
	k.End()
}

// TestSharedLive checks that an address is shared exactly as long as the interface
// exists, also when the interface is added a second time.
func TestSharedLive(t *testing.T) {
	s := newShare(t, "raw")
	was := s.rules()
	s.peer.EchoTCP(t, ":7")
	s.here.EchoTCP(t, ":22")
	link := s.flag
	s.flag = "user"
	k := s.run("-q", "--listen", "8080", "--port-range", "1024")
	if got := k.Say("serve(8080)"); got != "None" {
		t.Fatal(got)
	}
	reserved := ""
	for range 2 {
		kit.OK(t, kit.Limit, s.here.Command(kit.Bin("lklctl"), "-n", k.Name, "link", "add", link))
		if got := k.Say("crowd(%q, 7, 100)", peerAddr); !strings.HasPrefix(got, "'100, ") {
			t.Error(got)
		}
		s.echoes(s.peer, sharedAddr+":8080", 10)
		s.echoes(s.peer, sharedAddr+":22", 10)
		s.refuses()
		st := guardStatus(k)
		if len(st.Links) != 1 || st.Kept.Packets < 100 || st.Ports.Last-st.Ports.First != 1023 {
			t.Errorf("%+v", st)
		}
		if got := kit.OK(t, kit.Limit, k.Inside("nft", "list", "ruleset")); !strings.Contains(got, "table inet lklrun") {
			t.Errorf("the rules in the stack: %s", got)
		}
		kit.OK(t, kit.Limit, s.here.Command(kit.Bin("lklctl"), "-n", k.Name, "link", "del", "eth1"))
		if got := kit.OK(t, kit.Limit, k.Inside("nft", "list", "ruleset")); got != "" {
			t.Errorf("the rules in the stack: %s", got)
		}
		if st := guardStatus(k); len(st.Links) != 0 {
			t.Errorf("%+v", st)
		}
		// The ports remain reserved for the run, because the stack still uses them.
		now := s.rules()
		if strings.Contains(now, "lklrun") || reserved != "" && now != reserved {
			t.Errorf("the rules are\n%s", now)
		}
		reserved = now
	}
	k.End()
	if now := s.rules(); now != was {
		t.Errorf("the rules were\n%s\nand are\n%s", was, now)
	}
}

// TestSharedInterrupted checks that a start leaves nothing behind if Ctrl-C to all
// processes, or SIGKILL, interrupts it.
func TestSharedInterrupted(t *testing.T) {
	s := newShare(t, "raw")
	was := s.rules()
	for i := range 16 {
		backend := []string{"nft", "iptables"}[i%2]
		cmd := s.here.Command(kit.Bin("lklrun"), "--name", "broken", "--if", s.flag, "--rst-guard", backend, "--", "sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p := kit.Start(t, cmd)
		kit.Spread(6 * i)
		if i%4 < 2 {
			if err := unix.Kill(-p.Pid(), unix.SIGINT); err != nil {
				t.Fatal(err)
			}
			p.Wait(kit.Limit)
		} else {
			p.Signal(unix.SIGKILL)
			p.Wait(kit.Limit)
			kit.Within(5*time.Second, func() bool { return s.rules() == was })
			kit.OK(t, kit.Limit, s.here.Command(kit.Bin("lklrun"), "cleanup"))
		}
		kit.WaitFor(t, "the rules as they were", kit.Limit, func() bool { return s.rules() == was })
	}
}

// TestSharedRefused checks that impossible settings are refused before anything is
// done, and that --rst-guard print changes nothing.
func TestSharedRefused(t *testing.T) {
	s := newShare(t, "raw")
	was := s.rules()
	s.here.EchoTCP(t, ":22")
	for _, c := range []struct {
		args []string
		said string
	}{
		{[]string{"--listen", "22"}, "--listen 22: a tcp socket of the host at [::]:22 uses this port"},
		{[]string{"--port-range", "20-2000"}, "--port-range 20-2000: port 22 is in use on the host"},
		{[]string{"--port-range", "5"}, `--port-range "5": 5 ports; expected 16 to 32768`},
		{[]string{"--sysctl", "net.ipv4.ip_local_port_range=1000 2000"}, "--port-range"},
		{[]string{"--sysctl", "net.ipv4.no_such=1"}, "net.ipv4.no_such"}, // only the stack can detect it
	} {
		r := kit.Run(t, kit.Limit, s.here.Command(s.args(append(append([]string{"--if", s.flag}, c.args...), "--", "true")...)...))
		kit.OneLine(t, r, 2, regexp.QuoteMeta(c.said))
		if now := s.rules(); now != was {
			t.Errorf("%v: the rules were\n%s\nand are\n%s", c.args, was, now)
		}
	}
	raw := s.here.Command(append([]string{"setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"}, s.args("--if", s.flag, "--", "true")...)...)
	kit.OneLine(t, kit.Run(t, kit.Limit, raw), 2, sharedAddr+" is an address of the host: --rst-guard auto: .*CAP_NET_ADMIN")
	if now := s.rules(); now != was {
		t.Errorf("the rules were\n%s\nand are\n%s", was, now)
	}
	text := kit.OK(t, kit.Limit, s.here.Command(s.args("--if", s.flag, "--listen", "80", "--rst-guard", "print", "--", "true")...))
	for _, want := range []string{"ip_local_reserved_ports = 61440-65535,80", "table netdev lklrun-true", "ip6 daddr " + sharedAddr6 + " udp dport 80 counter drop"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if now := s.rules(); now != was {
		t.Errorf("the rules were\n%s\nand are\n%s", was, now)
	}
}

// TestSharedKilled checks that the rules and the reserved ports are unchanged, byte for
// byte, whichever process is killed.
func TestSharedKilled(t *testing.T) {
	for _, backend := range []string{"nft", "iptables"} {
		for _, who := range []string{"pid", "host_pid", "target_pid", "all, then cleanup", "all, then the next run"} {
			t.Run(backend+", "+who, func(t *testing.T) {
				s := newShare(t, "raw")
				was := s.rules()
				s.peer.EchoTCP(t, ":7")
				k := s.run("--rst-guard", backend, "--listen", "8080")
				if got := k.Say("crowd(%q, 7, 10)", peerAddr); !strings.HasPrefix(got, "'10, ") {
					t.Fatal(got)
				}
				if s.rules() == was {
					t.Error("there are no rules")
				}
				if !strings.HasPrefix(who, "all") {
					if err := unix.Kill(kit.ProcessOf(t, k, who), unix.SIGKILL); err != nil {
						t.Fatal(err)
					}
					k.Proc.Wait(kit.Limit)
					kit.WaitFor(t, "the rules as they were", kit.Limit, func() bool { return s.rules() == was })
					return
				}
				pids := k.KillAll()
				for _, pid := range pids {
					kit.WaitFor(t, "the end of the killed", kit.Limit, func() bool { return !kit.Alive(pid) })
				}
				if s.rules() == was {
					t.Error("somebody has tidied up")
				}
				if strings.HasSuffix(who, "cleanup") {
					kit.OK(t, kit.Limit, s.here.Command(kit.Bin("lklrun"), "cleanup"))
				} else {
					kit.OK(t, kit.Limit, s.here.Command(s.args("--name", k.Name, "--if", s.flag, "--rst-guard", backend, "--", "true")...))
				}
				if now := s.rules(); now != was {
					t.Errorf("the rules were\n%s\nand are\n%s", was, now)
				}
			})
		}
	}
}
