// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	testutil "github.com/lklrun/lklrun/test/kit"
)

// A talker is a python3 under lklrun that executes lines from its standard input, so
// that tests can open connections at chosen moments.
type talker struct {
	t    *testing.T
	name string
	proc *testutil.Proc
	in   io.WriteCloser
	out  *bufio.Reader
}

// talk starts a talker; flags precede its own name.
func (s *site) talk(flags ...string) *talker {
	s.t.Helper()
	return s.talkBy(lklrun, flags...)
}

// talkBy does the same with a command line of lklrun for another user.
func (s *site) talkBy(lklrun func(args ...string) *exec.Cmd, flags ...string) *talker {
	s.t.Helper()
	name := s.name()
	args := append([]string{"--name", name}, flags...)
	return startTalker(s.t, name, lklrun(append(args, "--", "/usr/bin/python3", "-uc", talks)...))
}

// talks is a talker's program.
const talks = `
import socket, sys
keep = {}
for line in sys.stdin:
    try: print(repr(eval(line)))
    except Exception as e: print(type(e).__name__, e)`

// startTalker starts cmd, which runs a talker under an instance name.
func startTalker(t *testing.T, name string, cmd *exec.Cmd) *talker {
	t.Helper()
	k := &talker{t: t, name: name}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	cmd.Stdout = w
	k.in, k.out = in, bufio.NewReader(out)
	k.proc = testutil.Start(t, cmd)
	go func() {
		testutil.Within(10*limit, func() bool { return !k.proc.Running() })
		_ = w.CloseWithError(io.ErrUnexpectedEOF) // ends a wait for an answer
	}()
	return k
}

// say evaluates a Python expression in the target.
func (k *talker) say(format string, args ...any) string {
	k.t.Helper()
	if _, err := fmt.Fprintf(k.in, format+"\n", args...); err != nil {
		k.t.Fatalf("talking to the target: %v", err)
	}
	answer, err := k.out.ReadString('\n')
	if err != nil {
		_, errs := k.proc.Output()
		k.t.Fatalf("hearing the target: %v: %s", err, errs)
	}
	return strings.TrimSuffix(answer, "\n")
}

// connect opens a connection and returns its congestion control.
func (k *talker) connect(key, addr string, port int) string {
	k.t.Helper()
	if got := k.say(`keep.__setitem__(%q, socket.create_connection((%q, %d), 10))`, key, addr, port); got != "None" {
		k.t.Fatalf("connecting to %s: %s", addr, got)
	}
	return strings.Trim(k.say(`keep[%q].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()`, key), "'")
}

// end lets the target end by itself.
func (k *talker) end() testutil.Result {
	k.t.Helper()
	if err := k.in.Close(); err != nil {
		k.t.Fatal(err)
	}
	return k.proc.Wait(limit)
}

// TestSysctlLive checks that a sysctl written to a running stack applies to the next
// connection.
func TestSysctlLive(t *testing.T) {
	s := newSite(t)
	s.web(testutil.Nginx{})
	before := testutil.Take(t, s.server)
	k := s.talk("--stack", "vanilla", "--if", s.tapIf())
	if cc := k.connect("first", serverAddr, 80); cc != "cubic" {
		t.Errorf("the first connection has %s, want cubic", cc)
	}
	lklctl(t, "sysctl", "-w", "net.ipv4.tcp_congestion_control=bbr") // with a single instance, -n is not needed
	if got := lklctl(t, "-n", k.name, "sysctl", "net.ipv4.tcp_congestion_control"); strings.TrimSpace(got) != "net.ipv4.tcp_congestion_control = bbr" {
		t.Errorf("sysctl reads back %q", got)
	}
	if cc := k.connect("second", serverAddr, 80); cc != "bbr" {
		t.Errorf("the connection after sysctl -w has %s, want bbr", cc)
	}
	if r := testutil.Run(t, limit, exec.Command(testutil.Bin("lklctl"), "sysctl", "-w", "net.ipv4.no_such=1")); r.Status == 0 || len(lines(r.Stderr)) != 1 {
		t.Errorf("a sysctl that is not there: %v", r)
	}
	if r := k.end(); r.Status != 0 {
		t.Errorf("the target: %v", r)
	}
	before.Same()
}

// TestSysctlAtStart checks that --sysctl applies from the first connection on.
func TestSysctlAtStart(t *testing.T) {
	s := newSite(t)
	s.web(testutil.Nginx{})
	k := s.talk("--stack", "vanilla", "--if", s.tapIf(), "--sysctl", "net.ipv4.tcp_congestion_control=reno")
	if cc := k.connect("c", serverAddr, 80); cc != "reno" {
		t.Errorf("congestion control %s, want reno", cc)
	}
	k.end()
}

// TestNetstat checks that netstat shows the same sockets as the stack's /proc/net/tcp.
func TestNetstat(t *testing.T) {
	s := newSite(t)
	s.web(testutil.Nginx{})
	k := s.talk("--stack", "vanilla", "--if", s.tapIf())
	for _, key := range []string{"a", "b", "c"} {
		k.connect(key, serverAddr, 80)
	}
	k.say(`keep.__setitem__("l", socket.create_server(("", 8080)))`)

	var sockets []struct {
		Proto   string `json:"proto"`
		Local   string `json:"local"`
		Remote  string `json:"remote"`
		State   string `json:"state"`
		Pid     int    `json:"pid"`
		Process string `json:"process"`
	}
	text := lklctl(t, "-o", "json", "netstat")
	if err := json.Unmarshal([]byte(text), &sockets); err != nil {
		t.Fatalf("netstat -o json: %v\n%s", err, text)
	}
	got := map[string]bool{}
	for _, x := range sockets {
		if x.Proto != "tcp" {
			continue
		}
		got[x.Local+" "+x.Remote] = true
		if x.Process != "python3" || !testutil.Alive(x.Pid) {
			t.Errorf("%s %s belongs to %q, pid %d; want python3", x.Local, x.Remote, x.Process, x.Pid)
		}
	}
	want := procNetTCP(t, lklctl(t, "cat", "/proc/net/tcp"))
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
	k.end()
}

// procNetTCP reads the addresses of /proc/net/tcp (proc_net_tcp.rst: four bytes in the
// host's order, in hexadecimal, then the port).
func procNetTCP(t *testing.T, text string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range lines(text)[1:] {
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
	s := newSite(t)
	s.web(testutil.Nginx{MPTCP: true})
	s.server.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")
	k := s.talk("--stack", "mptcp", "--if", s.tapIf())
	k.say("1") // it runs
	if rows := lines(lklctl(t, "cat", "/proc/net/mptcp")); len(rows) != 1 || !strings.Contains(rows[0], "loc_tok") {
		t.Errorf("before any connection /proc/net/mptcp holds %q", rows)
	}
	k.connect("c", serverAddr, 80)
	// 10.73.0.1:80, in the format of proc_net_tcp.rst.
	rows := lines(lklctl(t, "cat", "/proc/net/mptcp"))
	if len(rows) != 2 || !strings.Contains(rows[1], "0100490A:0050") || !strings.Contains(rows[1], "0A00490A:") {
		t.Errorf("/proc/net/mptcp does not list the connection: %q", rows)
	}
	if shown := lklctl(t, "mptcp"); !strings.Contains(shown, serverAddr+":80") || !strings.Contains(shown, stackAddr) || !strings.Contains(shown, "eth0") {
		t.Errorf("lklctl mptcp does not show the connection and its subflow on eth0:\n%s", shown)
	}
	var any []map[string]any
	if text := lklctl(t, "-o", "json", "mptcp"); json.Unmarshal([]byte(text), &any) != nil || len(any) != 1 {
		t.Errorf("lklctl -o json mptcp: not a list of one connection: %s", text)
	}
	if got := testutil.Host.Run(t, "ip", "netns", "exec", s.server.Name, "nstat", "-asz", "MPTcpExtMPCapableACKRX"); !strings.Contains(got, " 1 ") {
		t.Errorf("the server counted no MPTCP connection: %s", got)
	}
	if got := k.say(`keep["c"].getsockopt(1, 38)`); got != "6" { // SO_PROTOCOL
		t.Errorf("SO_PROTOCOL says %s, want 6, TCP", got)
	}
	k.say(`keep["c"].close()`)
	testutil.WaitFor(t, "an end in /proc/net/mptcp", limit, func() bool {
		return len(lines(lklctl(t, "cat", "/proc/net/mptcp"))) == 1
	})
	k.end()
}

// TestLklctl checks list, counters, stop, and lklctl's own errors.
func TestLklctl(t *testing.T) {
	s := newSite(t)
	s.web(testutil.Nginx{})
	before := testutil.Take(t, s.server)
	failing := func(args ...string) string {
		t.Helper()
		r := testutil.Run(t, limit, exec.Command(testutil.Bin("lklctl"), args...))
		if r.Status == 0 || len(lines(r.Stderr)) != 1 {
			t.Errorf("lklctl %s: want a failure and one line: %v", strings.Join(args, " "), r)
		}
		return r.Stderr
	}
	failing("netstat")                 // nothing is running
	failing("-n", "nobody", "netstat") // no instance has this name
	failing("no-such-verb")            // wrong usage

	k := s.talk("--stack", "vanilla", "--if", s.tapIf())
	k.connect("c", serverAddr, 80)
	if shown := lklctl(t, "list"); !strings.Contains(shown, k.name) || !strings.Contains(shown, "vanilla") || !strings.Contains(shown, "python3") {
		t.Errorf("list does not show the run:\n%s", shown)
	}
	var list []map[string]any
	if text := lklctl(t, "-o", "json", "list"); json.Unmarshal([]byte(text), &list) != nil || len(list) != 1 {
		t.Errorf("-o json list: %s", text)
	}
	if shown := lklctl(t, "counters"); !strings.Contains(shown, "TcpActiveOpens") {
		t.Errorf("counters lack TcpActiveOpens:\n%s", shown)
	}
	failing("cat", "/proc/net/no-such-file")

	other := s.talk("--stack", "vanilla", "--if", "user")
	other.say("1")
	if said := failing("netstat"); !strings.Contains(said, "-n") {
		t.Errorf("two run, and the remedy -n is not named: %q", said)
	}
	lklctl(t, "-n", other.name, "stop")
	other.proc.Wait(limit)
	lklctl(t, "-n", k.name, "stop")
	if r := k.proc.Wait(limit); status(r) != 143 {
		t.Errorf("lklctl stop ended the run with %v, want SIGTERM's 143", r)
	}
	before.Same()
}

// TestFullOutput checks that lklctl reports an output that accepts no data, and does
// not blame the stack.
func TestFullOutput(t *testing.T) {
	s := newSite(t)
	k := s.talk("--if", s.tapIf())
	k.say("1")
	for _, verb := range []string{"cat /proc/version", "counters", "sysctl -a", "list", "-o json cat /proc/version"} {
		cmd := exec.Command("sh", "-c", testutil.Bin("lklctl")+" "+verb+" >/dev/full")
		if r := testutil.Run(t, limit, cmd); r.Status != 1 || r.Stderr != "lklctl: writing to standard output: no space left on device\n" {
			t.Errorf("%s: %v", verb, r)
		}
	}
	k.end()
}
