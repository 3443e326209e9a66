// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestSysctlLive checks that a sysctl of a running stack can be changed, and applies to
// the next connection.
func TestSysctlLive(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	before := kit.Take(t, s.Server)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	change := func(to, note string) {
		t.Helper()
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "sysctl", "-w", "net.ipv4.tcp_congestion_control="+to)) // with a single instance, -n is not needed
		if r.Status != 0 || (note == "") != (r.Stderr == "") || !strings.Contains(r.Stderr, note) {
			t.Errorf("to %s, want the note %q: %v", to, note, r)
		}
	}
	k.Say("0") // the run has started
	change("reno", "")
	change("cubic", "")
	if cc := k.Connect("first", kit.ServerAddr, 80); cc != "cubic" {
		t.Errorf("the first connection has %s, want cubic", cc)
	}
	change("cubic", "")
	change("bbr", "applies to new connections; open ones (1) keep theirs")
	if got := kit.Lklctl(t, "-n", k.Name, "sysctl", "net.ipv4.tcp_congestion_control"); strings.TrimSpace(got) != "net.ipv4.tcp_congestion_control = bbr" {
		t.Errorf("sysctl reads back %q", got)
	}
	if cc := k.Connect("second", kit.ServerAddr, 80); cc != "bbr" {
		t.Errorf("the connection after sysctl -w has %s, want bbr", cc)
	}
	if r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "sysctl", "-w", "net.ipv4.no_such=1")); r.Status == 0 || len(kit.Lines(r.Stderr)) != 1 {
		t.Errorf("a sysctl that is not there: %v", r)
	}
	if r := k.End(); r.Status != 0 {
		t.Errorf("the target: %v", r)
	}
	before.Same()
}

// TestSysctlAtStart checks that --sysctl applies from the first connection on.
func TestSysctlAtStart(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf(), "--sysctl", "net.ipv4.tcp_congestion_control=reno")
	if cc := k.Connect("c", kit.ServerAddr, 80); cc != "reno" {
		t.Errorf("congestion control %s, want reno", cc)
	}
	k.End()
}

// TestNetstat checks that netstat shows the same sockets as the stack's /proc/net/tcp.
func TestNetstat(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	for _, key := range []string{"a", "b", "c"} {
		k.Connect(key, kit.ServerAddr, 80)
	}
	k.Say(`keep.__setitem__("l", socket.create_server(("", 8080)))`)

	var sockets []struct {
		Proto   string `json:"proto"`
		Local   string `json:"local"`
		Remote  string `json:"remote"`
		State   string `json:"state"`
		Pid     int    `json:"pid"`
		Process string `json:"process"`
	}
	text := kit.Lklctl(t, "-o", "json", "netstat")
	if err := json.Unmarshal([]byte(text), &sockets); err != nil {
		t.Fatalf("netstat -o json: %v\n%s", err, text)
	}
	got := map[string]bool{}
	for _, x := range sockets {
		if x.Proto != "tcp" {
			continue
		}
		got[x.Local+" "+x.Remote] = true
		if x.Process != "python3" || !kit.Alive(x.Pid) {
			t.Errorf("%s %s belongs to %q, pid %d; want python3", x.Local, x.Remote, x.Process, x.Pid)
		}
	}
	want := procNetTCP(t, kit.Lklctl(t, "cat", "/proc/net/tcp"))
	if len(want) != 4 {
		t.Errorf("/proc/net/tcp of the stack lists %d sockets, want 3 connections and a listener", len(want))
	}
	for addrs := range want {
		if !got[addrs] {
			t.Errorf("netstat misses %s of /proc/net/tcp:\n%s", addrs, text)
		}
	}
	for addrs := range got {
		if !want[addrs] {
			t.Errorf("netstat shows %s, which /proc/net/tcp does not", addrs)
		}
	}
	k.End()
}

// procNetTCP reads the addresses of /proc/net/tcp (proc_net_tcp.rst: four bytes in the
// host's order, in hexadecimal, then the port).
func procNetTCP(t *testing.T, text string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range kit.Lines(text)[1:] {
		f := strings.Fields(line)
		var pair []string
		for _, field := range f[1:3] {
			var a, b, c, d byte
			var port int
			if _, err := fmt.Sscanf(field, "%02X%02X%02X%02X:%04X", &d, &c, &b, &a, &port); err != nil {
				t.Fatalf("/proc/net/tcp: %q: %v", line, err)
			}
			addr := fmt.Sprintf("%d.%d.%d.%d:", a, b, c, d)
			if port == 0 {
				pair = append(pair, addr+"*")
			} else {
				pair = append(pair, fmt.Sprint(addr, port))
			}
		}
		all[strings.Join(pair, " ")] = true
	}
	return all
}

// TestMPTCPLive checks that /proc/net/mptcp and lklctl mptcp list the live connection.
func TestMPTCPLive(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{MPTCP: true})
	s.Server.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")
	k := s.Talk("--stack", "mptcp", "--if", s.TapIf())
	k.Say("1") // wait until the target runs
	if rows := kit.Lines(kit.Lklctl(t, "cat", "/proc/net/mptcp")); len(rows) != 1 || !strings.Contains(rows[0], "loc_tok") {
		t.Errorf("before any connection /proc/net/mptcp holds %q", rows)
	}
	k.Connect("c", kit.ServerAddr, 80)
	// 10.73.0.1:80, in the format of proc_net_tcp.rst.
	rows := kit.Lines(kit.Lklctl(t, "cat", "/proc/net/mptcp"))
	if len(rows) != 2 || !strings.Contains(rows[1], "0100490A:0050") || !strings.Contains(rows[1], "0A00490A:") {
		t.Errorf("/proc/net/mptcp does not list the connection: %q", rows)
	}
	if shown := kit.Lklctl(t, "mptcp"); !strings.Contains(shown, kit.ServerAddr+":80") || !strings.Contains(shown, kit.StackAddr) || !strings.Contains(shown, "eth0") {
		t.Errorf("lklctl mptcp does not show the connection and its subflow on eth0:\n%s", shown)
	}
	var any []map[string]any
	if text := kit.Lklctl(t, "-o", "json", "mptcp"); json.Unmarshal([]byte(text), &any) != nil || len(any) != 1 {
		t.Errorf("lklctl -o json mptcp: not a list of one connection: %s", text)
	}
	if got := kit.Host.Run(t, "ip", "netns", "exec", s.Server.Name, "nstat", "-asz", "MPTcpExtMPCapableACKRX"); !strings.Contains(got, " 1 ") {
		t.Errorf("the server counted no MPTCP connection: %s", got)
	}
	if got := k.Say(`keep["c"].getsockopt(1, 38)`); got != "6" { // SO_PROTOCOL
		t.Errorf("SO_PROTOCOL says %s, want 6, TCP", got)
	}
	k.Say(`keep["c"].close()`)
	kit.WaitFor(t, "an end in /proc/net/mptcp", kit.Limit, func() bool {
		return len(kit.Lines(kit.Lklctl(t, "cat", "/proc/net/mptcp"))) == 1
	})
	k.End()
}

// TestLklctl checks list, counters, stop, and lklctl's own errors.
func TestLklctl(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	before := kit.Take(t, s.Server)
	failing := func(args ...string) string {
		t.Helper()
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), args...))
		if r.Status == 0 || len(kit.Lines(r.Stderr)) != 1 {
			t.Errorf("lklctl %s: want a failure and one line: %v", strings.Join(args, " "), r)
		}
		return r.Stderr
	}
	failing("netstat")                 // nothing is running
	failing("-n", "nobody", "netstat") // no instance has this name
	failing("no-such-verb")            // wrong usage

	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	k.Connect("c", kit.ServerAddr, 80)
	if shown := kit.Lklctl(t, "list"); !strings.Contains(shown, k.Name) || !strings.Contains(shown, "vanilla") || !strings.Contains(shown, "python3") {
		t.Errorf("list does not show the run:\n%s", shown)
	}
	var list []map[string]any
	if text := kit.Lklctl(t, "-o", "json", "list"); json.Unmarshal([]byte(text), &list) != nil || len(list) != 1 {
		t.Errorf("-o json list: %s", text)
	}
	if shown := kit.Lklctl(t, "counters"); !strings.Contains(shown, "TcpActiveOpens") {
		t.Errorf("counters lack TcpActiveOpens:\n%s", shown)
	}
	failing("cat", "/proc/net/no-such-file")

	other := s.Talk("--stack", "vanilla", "--if", "user")
	other.Say("1")
	if said := failing("netstat"); !strings.Contains(said, "-n") {
		t.Errorf("two run, and the remedy -n is not named: %q", said)
	}
	kit.Lklctl(t, "-n", other.Name, "stop")
	other.Proc.Wait(kit.Limit)
	kit.Lklctl(t, "-n", k.Name, "stop")
	if r := k.Proc.Wait(kit.Limit); kit.ShellStatus(r) != 143 {
		t.Errorf("lklctl stop ended the run with %v, want SIGTERM's 143", r)
	}
	before.Same()
}

// TestFullOutput checks that lklctl reports a full output as such, and not as an error of
// the stack.
func TestFullOutput(t *testing.T) {
	s := kit.NewSite(t)
	k := s.Talk("--if", s.TapIf())
	k.Say("1")
	for _, verb := range []string{"cat /proc/version", "counters", "sysctl -a", "list", "-o json cat /proc/version"} {
		cmd := exec.Command("sh", "-c", kit.Bin("lklctl")+" "+verb+" >/dev/full")
		if r := kit.Run(t, kit.Limit, cmd); r.Status != 1 || r.Stderr != "lklctl: writing to standard output: no space left on device\n" {
			t.Errorf("%s: %v", verb, r)
		}
	}
	k.End()
}
