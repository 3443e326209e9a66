// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	testutil "github.com/lklrun/lklrun/test/kit"
)

// handoverLimit bounds one transfer with its cuts, on a machine with much other work.
const handoverLimit = 2 * time.Minute

// stallLimit is only a limit for the test; a measured stall is a quarter of it on a
// busy machine. A silent path that is still used carries 32 KiB in 200 ms, a megabyte
// in about 6 s.
const stallLimit = 4 * time.Second

// handoverRate is the rate of each path.
const handoverRate = "100mbit"

// handoverAsks is the target. It fetches or sends, and prints the number of bytes,
// their checksum, and the longest time without any. It sends 64-bit words that count up
// (movePeer.compare).
const handoverAsks = `
import array, hashlib, socket, sys, time
address, port, what, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
s = socket.create_connection((address, port), 600)
h, n, worst = hashlib.sha256(), 0, 0
s.sendall(what[0].encode())
last = time.monotonic()
while what == "get":
    b = s.recv(1 << 18)
    now = time.monotonic()
    worst, last = max(worst, now - last), now
    if not b: break
    n += len(b)
    h.update(b)
while what == "put" and n < size:
    b = array.array("Q", range(n // 8, (n + min(1 << 18, size - n)) // 8)).tobytes()
    s.sendall(b)
    n += len(b)
    h.update(b)
s.shutdown(socket.SHUT_WR)
s.recv(1)
print(n, h.hexdigest(), worst)
`

// A pathSite is a client's host and a server that speaks MPTCP, with two paths of
// handoverRate in between:
//
//	tap0 ─ br0 ─ v0 ─── s0 10.74.1.1
//	tap1 ─ br1 ─ v1 ─── s1 10.74.2.1
type pathSite struct {
	*testing.T
	host, server *testutil.Netns
	name         string
	ifs          [2]string // the interfaces, as in --if
	devs         [2]string // the host's devices that they use
	addr         string    // of the server, on the first path
}

func newPathSite(t *testing.T) *pathSite {
	t.Helper()
	p := newPeers(t)
	p.wire(0, ",ip=10.74.1.2/24,gw=10.74.1.1")
	p.wire(1, ",ip=10.74.2.2/24,gw=10.74.2.1")
	return p
}

// newPhone is a pathSite whose first path is a network with a DHCP server, like Wi-Fi,
// and whose second path is a device without link layer, like a modem:
//
//	tap0 ─ br0 ─ v0 ─── s0 10.74.1.1
//	tun0 ────────────── s1 10.74.2.1
func newPhone(t *testing.T) *pathSite {
	t.Helper()
	p := newPeers(t)
	p.wire(0, ",dhcp")
	p.server.DnsmasqDHCP(t, "s0", "--dhcp-range=10.74.1.100,10.74.1.200,255.255.255.0,600", "--dhcp-option=option:router,10.74.1.1")
	near, far := openTun(t, p.host, "tun0", unix.IFF_TUN|unix.IFF_NO_PI), openTun(t, p.server, "s1", unix.IFF_TUN|unix.IFF_NO_PI)
	p.host.Run(t, "ip", "link", "set", "tun0", "up")
	p.server.Run(t, "ip", "link", "set", "s1", "up")
	p.server.Addr(t, "s1", "10.74.2.1/24")
	p.server.Rate(t, "s1", handoverRate)
	p.host.Rate(t, "tun0", handoverRate)
	t.Cleanup(carryFrames(near, far))
	p.ifs[1], p.devs[1] = "rawip:tun0,ip=10.74.2.2/24", "tun0"
	return p
}

// newSixes is a pathSite with IPv6, over macvtaps on the wires themselves.
func newSixes(t *testing.T) *pathSite {
	t.Helper()
	p := newPeers(t)
	p.addr = "fd74:1::1"
	for n := range 2 {
		v, s := fmt.Sprint("v", n), fmt.Sprint("s", n)
		testutil.Veth(t, p.host, v, p.server, s)
		p.server.Addr(t, s, fmt.Sprintf("fd74:%d::1/64", n+1))
		p.server.Rate(t, s, handoverRate)
		p.host.Rate(t, v, handoverRate)
		p.ifs[n], p.devs[n] = fmt.Sprintf("macvtap:%s,ip6=fd74:%d::2/64,gw6=fd74:%d::1", v, n+1, n+1), v
	}
	return p
}

// wire sets up a tap to the server.
func (p *pathSite) wire(n int, keys string) {
	p.Helper()
	v, s, tap := fmt.Sprint("v", n), fmt.Sprint("s", n), fmt.Sprint("tap", n)
	testutil.Veth(p, p.host, v, p.server, s)
	p.host.Tap(p, tap)
	p.host.Bridge(p, fmt.Sprint("br", n), v, tap)
	p.server.Addr(p, s, fmt.Sprintf("10.74.%d.1/24", n+1))
	p.server.Rate(p, s, handoverRate)
	p.host.Rate(p, v, handoverRate)
	p.ifs[n], p.devs[n] = "tap:"+tap+keys, tap
}

func newPeers(t *testing.T) *pathSite {
	t.Helper()
	testutil.Need(t, "ip", "tc", "ss", "dnsmasq", "/usr/bin/python3", testutil.Bin("lklrun"), testutil.Bin("lklctl"), testutil.Bin("lklhost"))
	p := &pathSite{T: t, host: testutil.NewNetns(t, "phone"), server: testutil.NewNetns(t, "peer"), name: newName(), addr: "10.74.1.1"}
	p.server.Run(t, "sysctl", "-qw", "net.mptcp.enabled=1")
	p.server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")
	return p
}

// run starts a target on both paths; options are added to the specification of eth1.
func (p *pathSite) run(engine, options string, args ...string) *testutil.Proc {
	p.Helper()
	cmd := append([]string{
		testutil.Bin("lklrun"), "-v", "--name", p.name, "--engine", engine,
		"--if", p.ifs[0], "--if", p.ifs[1] + options, "--",
	}, args...)
	return testutil.Start(p, p.host.Command(cmd...))
}

// inStack runs a command by lklctl exec.
func (p *pathSite) inStack(args ...string) string {
	p.Helper()
	return lklctl(p.T, append([]string{"exec", "-n", p.name, "--"}, args...)...)
}

// A cut takes a path away and gives it back.
type cut struct {
	name          string
	away, restore func(p *pathSite, path int)
}

// cutDown sets the host's device down, which the stack can be told.
var cutDown = cut{
	"down",
	func(p *pathSite, n int) { p.host.Run(p, "ip", "link", "set", p.devs[n], "down") },
	func(p *pathSite, n int) { p.host.Run(p, "ip", "link", "set", p.devs[n], "up") },
}

// cutSilent makes a later hop stop forwarding, which no side can be told.
var cutSilent = cut{
	"silent",
	func(p *pathSite, n int) { p.host.Run(p, "ip", "link", "set", fmt.Sprint("v", n), "nomaster") },
	func(p *pathSite, n int) {
		p.host.Run(p, "ip", "link", "set", fmt.Sprint("v", n), "master", fmt.Sprint("br", n))
	},
}

// carried returns the number of bytes that have crossed a path, by the counters of the
// server's device.
func (p *pathSite) carried(path int) int64 {
	p.Helper()
	var devs []struct {
		Stats64 struct{ RX, TX struct{ Bytes int64 } }
	}
	text := p.server.Run(p, "ip", "-j", "-s", "link", "show", fmt.Sprint("s", path))
	if err := json.Unmarshal([]byte(text), &devs); err != nil || len(devs) != 1 {
		p.Fatalf("ip -s link: %v\n%s", err, text)
	}
	return devs[0].Stats64.RX.Bytes + devs[0].Stats64.TX.Bytes
}

// until waits for a state of a transfer, which must not end before.
func (p *pathSite) until(what string, target *testutil.Proc, cond func() bool) {
	p.Helper()
	ok := testutil.Within(handoverLimit, func() bool { return cond() || !target.Running() })
	if out, errs := target.Output(); !ok || !target.Running() {
		if !ok {
			p.Logf("the stack: %s\nthe server: %s", lklctl(p.T, "-n", p.name, "mptcp"), p.server.Run(p, "ss", "-tinmM"))
		}
		p.Fatalf("%s: not before the end\n%s%s", what, out, errs)
	}
}

// runsOut waits for the end of a target.
func (p *pathSite) runsOut(target *testutil.Proc) {
	p.Helper()
	if !testutil.Within(handoverLimit, func() bool { return !target.Running() }) {
		_, errs := target.Output()
		p.Fatalf("it does not end; the stack: %s\nthe server: %s\n%s", lklctl(p.T, "-n", p.name, "mptcp"), p.server.Run(p, "ss", "-tinmM"), errs)
	}
}

// handoverSize is the size of the transfers; HANDOVER_MB=500 selects the long form.
func handoverSize(t *testing.T) int64 {
	return int64(setting(t, "HANDOVER_MB", 80)) << 20
}

// ended checks the outcome of a transfer and returns its longest stall: the server's
// longest time for a megabyte, or the target's longest time without a byte.
func (p *pathSite) ended(target *testutil.Proc, peer *movePeer, what string, size int64) time.Duration {
	p.Helper()
	p.runsOut(target)
	r := target.Wait(limit)
	f := strings.Fields(r.Stdout)
	if r.Status != 0 || len(f) != 3 {
		p.Fatalf("the transfer: %v", r)
	}
	stall, err := strconv.ParseFloat(f[2], 64)
	if err != nil {
		p.Fatal(err)
	}
	sum, worst, err := peer.wait(handoverLimit)
	if err != nil {
		p.Fatalf("the server: %v\n%s", err, r.Stderr)
	}
	if moved := peer.moved.Load(); f[0] != fmt.Sprint(moved) || moved < size || f[1] != sum || peer.wrong != "" {
		p.Errorf("the target had %s bytes, %s; the server %d of %d, %s; %s", f[0], f[1], moved, size, sum, peer.wrong)
	}
	if what == "put" { // the receiver knows
		return worst
	}
	return time.Duration(stall * float64(time.Second))
}

// TestHandover cuts one of two paths in the middle of a transfer, restores it, then
// cuts the other. The transfer must complete, with short pauses only.
func TestHandover(t *testing.T) {
	size := handoverSize(t)
	for _, c := range []struct {
		engine, what, paths string
		cut
	}{
		{"supervise", "get", "taps", cutDown},
		{"supervise", "put", "taps", cutDown},
		{"supervise", "get", "taps", cutSilent}, // the engine makes no difference here
		{"supervise", "put", "taps", cutSilent},
		{"supervise", "get", "phone", cutDown},
		{"preload", "get", "sixes", cutDown},
		{"preload", "put", "taps", cutDown},
		{"preload", "put", "phone", cutDown},
	} {
		t.Run(strings.Join([]string{c.engine, c.what, c.paths, c.name}, " "), func(t *testing.T) {
			t.Parallel()
			lay := map[string]func(*testing.T) *pathSite{"taps": newPathSite, "phone": newPhone, "sixes": newSixes}[c.paths]
			handover(lay(t), c.engine, c.what, c.cut, size)
		})
	}
}

func handover(p *pathSite, engine, what string, c cut, size int64) {
	peer := p.serveMoves(size)
	// The server's kernel decides when it tries a path again, so the server sends until
	// then.
	peer.more.Store(true)
	target := p.run(engine, "", "/usr/bin/python3", "-c", handoverAsks, p.addr, peer.port, what, fmt.Sprint(size))
	p.until("a fifth of it", target, func() bool { return peer.moved.Load() > size/5 })
	c.away(p, 0)
	p.until("a third of it, by one path", target, func() bool { return peer.moved.Load() > size/3 })
	before := p.carried(0)
	c.restore(p, 0)
	p.until("the first path in use again", target, func() bool { return p.carried(0) > before+1<<20 })
	c.away(p, 1)
	peer.more.Store(false)
	stall := p.ended(target, peer, what, size)
	p.Logf("%d MB, both paths cut in turn: the longest time without progress was %v", size>>20, stall.Round(time.Millisecond))
	if stall > stallLimit {
		p.Errorf("a stall of %v", stall)
	}
	if _, errs := target.Output(); c.name == cutDown.name && !strings.Contains(errs, "eth0 carries again: MPTCP connections use it") {
		p.Errorf("-v does not tell of it:\n%s", errs)
	}
}

// TestHandoverBlink checks that a path that disappears and returns at once is used
// again. Data that waits on the other path delays the announcement of its removal, but
// not that of its return.
func TestHandoverBlink(t *testing.T) {
	t.Parallel()
	const size = 160 << 20
	p := newPathSite(t)
	p.host.Run(t, "tc", "qdisc", "replace", "dev", "v1", "root", "tbf", "rate", handoverRate, "burst", "256kb", "latency", "500ms")
	peer := p.serveMoves(size)
	target := p.run("supervise", "", "/usr/bin/python3", "-c", handoverAsks, p.addr, peer.port, "put", fmt.Sprint(size))
	log := func(what string, n int) func() bool {
		return func() bool {
			_, errs := target.Output()
			return strings.Count(errs, what) == n
		}
	}
	for n := 1; n <= 3; n++ {
		p.until("a long queue", target, func() bool { return peer.moved.Load() > int64(n)*size/5 })
		cutDown.away(p, 0)
		p.until("the endpoint gone", target, log("mptcp endpoint del id 1", n))
		cutDown.restore(p, 0)
		p.until("it is back", target, log("eth0 carries again: MPTCP connections use it", n))
		before := p.carried(0)
		p.until("the path in use again", target, func() bool { return p.carried(0) > before+2<<20 })
	}
	p.ended(target, peer, "put", size)
}

// TestHandoverNoPath checks that a connection without any path pauses, and continues
// when a path returns.
func TestHandoverNoPath(t *testing.T) {
	t.Parallel()
	outage := 2 * time.Second
	if handoverSize(t) >= 500<<20 {
		outage = 30 * time.Second
	}
	const size = 40 << 20
	p := newPathSite(t)
	peer := p.serveMoves(size)
	target := p.run("supervise", "", "/usr/bin/python3", "-c", handoverAsks, "10.74.1.1", peer.port, "get", fmt.Sprint(size))
	p.until("a quarter of it", target, func() bool { return peer.moved.Load() > size/4 })
	for n := range 2 {
		cutDown.away(p, n)
	}
	over := time.NewTimer(outage) // the outage under test, not a wait for an event
	<-over.C
	for n := range 2 {
		cutDown.restore(p, 1-n)
	}
	stall := p.ended(target, peer, "get", size)
	t.Logf("no path for %v: %v without progress", outage, stall.Round(time.Millisecond))
	if stall < outage*9/10 {
		t.Errorf("%v without progress: the paths were not cut", stall)
	}
}

// TestHandoverAlone checks a connection that has no other path, because its peer
// accepts no more subflows. It must survive a cut of its only path.
func TestHandoverAlone(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	p := newPathSite(t)
	p.server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "0", "add_addr_accepted", "0")
	peer := p.serveMoves(size)
	target := p.run("supervise", "", "/usr/bin/python3", "-c", handoverAsks, p.addr, peer.port, "get", fmt.Sprint(size))
	p.until("a third of it", target, func() bool { return peer.moved.Load() > size/3 })
	cutDown.away(p, 0)
	p.until("the endpoint stays", target, func() bool {
		_, errs := target.Output()
		return strings.Contains(errs, "its MPTCP endpoint (10.74.1.2) stays, as there are connections without another path (1)")
	})
	cutDown.restore(p, 0)
	stall := p.ended(target, peer, "get", size)
	t.Logf("%v without progress", stall.Round(time.Millisecond))
	if n := p.carried(1); n > 64<<10 {
		t.Errorf("the other path has carried %d bytes", n)
	}
}

// TestHandoverBackup checks that a backup carries no data while the other path works.
func TestHandoverBackup(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	p := newPathSite(t)
	peer := p.serveMoves(size)
	target := p.run("supervise", ",backup", "/usr/bin/python3", "-c", handoverAsks, "10.74.1.1", peer.port, "get", fmt.Sprint(size))
	p.until("a third of it", target, func() bool { return peer.moved.Load() > size/3 })
	var conns []struct {
		Subflows []struct {
			Iface   string
			Backup  bool
			TCPInfo struct {
				BytesReceived int64 `json:"bytes_received"`
			} `json:"tcp_info"`
		}
	}
	text := lklctl(t, "-n", p.name, "-o", "json", "mptcp")
	if err := json.Unmarshal([]byte(text), &conns); err != nil || len(conns) != 1 || len(conns[0].Subflows) != 2 {
		t.Fatalf("lklctl mptcp: %v\n%s", err, text)
	}
	for _, s := range conns[0].Subflows {
		t.Logf("%s, backup %v: the stack has received %d bytes", s.Iface, s.Backup, s.TCPInfo.BytesReceived)
		if idle := s.TCPInfo.BytesReceived < 64<<10; idle != s.Backup || s.Backup != (s.Iface == "eth1") {
			t.Errorf("%+v", s)
		}
	}
	first, second := p.carried(0), p.carried(1)
	t.Logf("the server's devices: %d bytes and %d", first, second)
	if second > 64<<10 || first < size/4 {
		t.Error("the backup is used, or nothing is")
	}
	cutDown.away(p, 0)
	p.until("the backup in use", target, func() bool { return p.carried(1) > second+size/8 })
	stall := p.ended(target, peer, "get", size)
	t.Logf("after the cut: %d bytes and %d; the longest time without progress was %v", p.carried(0), p.carried(1), stall.Round(time.Millisecond))
}

// TestHandoverFlags checks what the peer sees of the other flags.
func TestHandoverFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options  string
		subflows int
	}{
		{"", 2},
		{",fullmesh", 3}, // eth1 also connects to the peer's second address
		{",signal", 1},   // announced; the peer's kernel does not use the announcement here
	} {
		p := newPathSite(t)
		p.server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "0")
		if c.options == ",fullmesh" {
			p.server.Run(t, "ip", "mptcp", "endpoint", "add", "10.74.2.1", "signal")
		}
		monitor := testutil.Start(t, p.server.Command("ip", "mptcp", "monitor"))
		peer := p.serveMoves(1)
		target := p.run("supervise", c.options, "/usr/bin/python3", "-uc", `
import socket, sys, time
s = socket.create_connection(("10.74.1.1", int(sys.argv[1])), 60)
s.sendall(b"w")
time.sleep(600)`, peer.port)
		subflows := func() int {
			return len(lines(p.server.Run(t, "ss", "-tnH", "state", "established", "( sport = :"+peer.port+" )")))
		}
		if c.options == ",signal" {
			p.until("the announcement", target, func() bool {
				out, _ := monitor.Output()
				return strings.Contains(out, "ANNOUNCED") && strings.Contains(out, "addr4=10.74.2.2")
			})
		}
		p.until(fmt.Sprintf("%d subflows with %q", c.subflows, c.options), target, func() bool { return subflows() == c.subflows })
		want := map[string]string{"": "subflow dev eth1", ",fullmesh": "subflow fullmesh dev eth1", ",signal": "signal dev eth1"}[c.options]
		if text := p.inStack("ip", "mptcp", "endpoint"); !strings.Contains(text, "10.74.2.2 id 2 "+want) {
			t.Errorf("%q: no endpoint %q in\n%s", c.options, want, text)
		}
		lklctl(t, "stop", "-n", p.name)
		target.Wait(limit)
	}
}

// TestHandoverByHand checks that an address added by a program in the stack becomes a
// full path, and that new connections use a path that works.
func TestHandoverByHand(t *testing.T) {
	t.Parallel()
	p := newPathSite(t)
	p.server.Run(t, "ip", "addr", "add", "10.74.3.1/24", "dev", "s1")
	peer := p.serveMoves(1)
	target := p.run("supervise", "", "sleep", "600")
	has := func(yes bool, what string, args ...string) {
		t.Helper()
		p.until(fmt.Sprintf("%q there: %v", what, yes), target, func() bool { return strings.Contains(p.inStack(args...), what) == yes })
	}
	p.until("the run", target, func() bool {
		return exec.Command(testutil.Bin("lklctl"), "exec", "-n", p.name, "--", "true").Run() == nil
	})
	has(true, "10.74.2.2 id 2 subflow dev eth1", "ip", "mptcp", "endpoint")
	p.inStack("ip", "addr", "add", "10.74.3.2/24", "dev", "eth1")
	has(true, "10.74.3.2 id 3 subflow dev eth1", "ip", "mptcp", "endpoint")
	has(true, "from 10.74.3.2 lookup 101", "ip", "rule")
	has(true, "10.74.3.0/24 dev eth1", "ip", "route", "show", "table", "101")
	p.inStack("ip", "addr", "del", "10.74.3.2/24", "dev", "eth1")
	has(false, "10.74.3.2", "ip", "mptcp", "endpoint")

	connects := func() string {
		return strings.TrimSpace(p.inStack("/usr/bin/python3", "-c", `
import socket, sys
s = socket.create_connection(("10.74.1.1", int(sys.argv[1])), 30)
print(s.getsockname()[0])`, peer.port))
	}
	if from := connects(); from != "10.74.1.2" {
		t.Errorf("a connection comes from %s, want the first interface's address", from)
	}
	cutDown.away(p, 0)
	has(false, "10.74.1.2", "ip", "mptcp", "endpoint")
	has(true, "NO-CARRIER", "ip", "-o", "link", "show", "eth0")
	if from := connects(); from != "10.74.2.2" {
		t.Errorf("with eth0 cut a connection comes from %s, want the second interface's address", from)
	}
	cutDown.restore(p, 0)
	has(true, "10.74.1.2 id 1 subflow dev eth0", "ip", "mptcp", "endpoint")
}
