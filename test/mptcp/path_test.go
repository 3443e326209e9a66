// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// fetchFor is a target that fetches from the server until it is stopped.
const fetchFor = `
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 600)
s.sendall(b"g")
while s.recv(1 << 18): pass
`

// fetches starts the target on a stack and waits for two subflows.
func fetches(p *kit.PathSite, stack, engine string) *kit.Proc {
	p.Helper()
	peer := p.ServeTransfers(1 << 40)
	cmd := []string{
		kit.Bin("lklrun"), "--name", p.Instance, "--stack", stack, "--engine", engine,
		"--if", p.Ifs[0], "--if", p.Ifs[1], "--", "/usr/bin/python3", "-c", fetchFor, p.Addr, peer.Port,
	}
	target := kit.Start(p, p.Host.Command(cmd...))
	p.Until("a megabyte", target, func() bool { return peer.Moved.Load() > 1<<20 })
	return target
}

// pathVerb applies a step of `lklctl path`, or shows the steps in effect.
func pathVerb(p *kit.PathSite, args ...string) string {
	p.Helper()
	return kit.Lklctl(p.T, append([]string{"path", "-n", p.Instance}, args...)...)
}

// onWire returns the number of subflows on an interface.
func onWire(p *kit.PathSite, iface string) (n int) {
	p.Helper()
	var conns []struct {
		Subflows []struct{ Iface, State string }
	}
	text := kit.Lklctl(p.T, "-n", p.Instance, "-o", "json", "mptcp")
	if err := json.Unmarshal([]byte(text), &conns); err != nil {
		p.Fatalf("lklctl mptcp: %v\n%s", err, text)
	}
	for _, c := range conns {
		for _, s := range c.Subflows {
			if s.Iface == iface && s.State == "ESTAB" {
				n++
			}
		}
	}
	return n
}

// TestPath checks that a drill takes effect, is shown, and leaves nothing behind. The
// interface's own queueing discipline must be the same afterwards, byte for byte.
func TestPath(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite(t)
	target := fetches(p, "bbr", "supervise")
	p.InStack("tc", "qdisc", "replace", "dev", "eth1", "root", "handle", "9:", "fq", "limit", "5000", "flow_limit", "90")
	before := p.InStack("tc", "-j", "qdisc", "show")
	links := p.InStack("ip", "-o", "link")

	pathVerb(p, "eth1", "delay", "40ms", "loss", "0.5%")
	pathVerb(p, "eth1", "rate", "20mbit")
	if text := pathVerb(p, "eth1"); !strings.Contains(text, "delay 40ms rate 20.0Mbit/s loss 0.5%") {
		t.Errorf("it shows\n%s", text)
	}
	tc := p.InStack("tc", "qdisc", "show")
	if n := strings.Count(tc, "delay 40ms loss 0.5% rate 20Mbit"); n != 2 || !strings.Contains(tc, "qdisc fq 9: dev eth1 root") {
		t.Errorf("tc(8) sees %d of them\n%s", n, tc)
	}
	pathVerb(p, "eth1", "loss", "0", "rate", "0") // the delay remains
	if ms := ping(p, "eth1"); ms < 80 {
		t.Errorf("with 40 ms each way a ping takes %v ms", ms)
	}
	pathVerb(p, "eth1", "duplicate", "100%", "--direction", "in")
	if out, _ := pings(p, "eth1", pingWait); !strings.Contains(out, "DUP!") {
		t.Errorf("nothing comes twice:\n%s", out)
	}
	pathVerb(p, "eth1", "silent")
	if out, err := pings(p, "eth1", 1); err == nil {
		t.Errorf("on a silent path something comes:\n%s", out)
	}
	pathVerb(p, "eth1", "clear")
	if after := p.InStack("tc", "-j", "qdisc", "show"); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	if after := p.InStack("ip", "-o", "link"); after != links {
		t.Errorf("before\n%safter\n%s", links, after)
	}
	badSteps(p, before)
	kit.Lklctl(t, "stop", "-n", p.Instance)
	target.Wait(kit.Limit)
}

// TestPathDown checks that MPTCP leaves a path whose cable is pulled, and uses it again
// afterwards.
func TestPathDown(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := kit.NewPathSite(t)
			target := fetches(p, "mptcp", engine)
			before := pathVerb(p)
			p.Until("a subflow there", target, func() bool { return onWire(p, "eth1") == 1 })
			pathVerb(p, "eth1", "down", "delay", "1ms")
			if text := pathVerb(p, "eth1"); !strings.Contains(text, "eth1  no       both           0+0  silent delay 1ms") {
				t.Errorf("it shows\n%s", text)
			}
			p.Until("none there", target, func() bool { return onWire(p, "eth1") == 0 })
			pathVerb(p, "eth1", "up")
			p.Until("one there again", target, func() bool { return onWire(p, "eth1") == 1 })
			pathVerb(p, "eth1", "clear")
			if after := pathVerb(p); after != before {
				t.Errorf("before\n%safter\n%s", before, after)
			}
			kit.Lklctl(t, "stop", "-n", p.Instance)
			target.Wait(kit.Limit)
		})
	}
}

// badSteps checks steps that are refused in one line and change nothing.
func badSteps(p *kit.PathSite, before string) {
	p.Helper()
	for _, args := range [][]string{
		{"eth1", "delay", "40ms", "loss", "200%"}, {"eth7", "down"}, {"eth1", "delay", "1ms", "reorder"}, {"eth1", "reorder", "5%"}, {"lo", "down"}, {"eth7"},
		{"eth1", "down", "--direction", "in"}, {"eth1", "--for", "3s"}, {"--script", "-"},
	} {
		r := kit.Start(p, exec.Command(kit.Bin("lklctl"), append([]string{"path", "-n", p.Instance}, args...)...)).Wait(kit.Limit)
		if r.Status != 2 || strings.Count(r.Stderr, "\n") != 1 {
			p.Errorf("%q: %v", args, r)
		}
	}
	if after := p.InStack("tc", "-j", "qdisc", "show"); after != before {
		p.Errorf("before\n%safter\n%s", before, after)
	}
}

// pings pings the server over an interface, five times, because queues on the path may
// be full.
func pings(p *kit.PathSite, iface string, wait int) (string, error) {
	p.Helper()
	to := fmt.Sprintf("10.74.%d.1", 1+strings.Index("eth0 eth1", iface)/5)
	out, err := exec.Command(kit.Bin("lklctl"), "exec", "-n", p.Instance, "--", "ping", "-I", iface, "-c", "5", "-i", "0.2", "-W", strconv.Itoa(wait), to).CombinedOutput()
	return string(out), err
}

// pingWait is the timeout for an expected answer, in seconds.
const pingWait = 20

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// ping returns the shortest time of an answer in milliseconds.
func ping(p *kit.PathSite, iface string) float64 {
	p.Helper()
	out, err := pings(p, iface, pingWait)
	all := pingTime.FindAllStringSubmatch(out, -1)
	if err != nil || all == nil {
		p.Fatalf("ping: %v\n%s", err, out)
	}
	least := math.Inf(1)
	for _, m := range all {
		ms, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			p.Fatal(err)
		}
		least = min(least, ms)
	}
	return least
}

// TestPathSeed checks that a seed makes a path lose the same packets again.
func TestPathSeed(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite(t)
	target := p.Start("supervise", "", "sleep", "600")
	p.Until("the run", target, func() bool {
		return exec.Command(kit.Bin("lklctl"), "exec", "-n", p.Instance, "--", "true").Run() == nil
	})
	// Other packets of the stack would take a part in the sequence.
	kit.Lklctl(t, "sysctl", "-n", p.Instance, "-w", "net.ipv6.conf.eth1.disable_ipv6=1")
	p.InStack("ping", "-c", "1", "-W", strconv.Itoa(pingWait), "10.74.2.1")
	permanent := func(run func(...string) string, addr, dev string) {
		mac := strings.Fields(run("ip", "neigh", "show", addr, "dev", dev))
		run("ip", "neigh", "replace", addr, "dev", dev, "lladdr", mac[slices.Index(mac, "lladdr")+1], "nud", "permanent")
	}
	permanent(p.InStack, "10.74.2.1", "eth1")
	permanent(func(args ...string) string { return p.Server.Run(t, args...) }, "10.74.2.2", "s1") // otherwise it would ask the stack
	lost := func(seed string) string {
		pathVerb(p, "eth1", "loss", "40%", "seed", seed, "--direction", "out")
		out, _ := exec.Command(kit.Bin("lklctl"), "exec", "-n", p.Instance, "--", "ping", "-I", "eth1", "-c", "50", "-i", "0.02", "-W", "1", "10.74.2.1").CombinedOutput()
		return strings.Join(pingNumber.FindAllString(string(out), -1), " ")
	}
	first := lost("7")
	if got, want := pathVerb(p, "eth1"), "loss 40% seed 7"; !strings.Contains(got, want) {
		t.Errorf("it shows\n%s", got)
	}
	if again := lost("7"); again != first || len(first) < 50 {
		t.Errorf("with the same seed arrive\n%s\nand then\n%s", first, again)
	}
	if other := lost("8"); other == first {
		t.Errorf("with another seed also arrive\n%s", other)
	}
	pathVerb(p, "eth1", "seed", "0")
	if got := pathVerb(p, "eth1"); strings.Contains(got, "seed") {
		t.Errorf("without a seed it shows\n%s", got)
	}
	kit.Lklctl(t, "stop", "-n", p.Instance)
	target.Wait(kit.Limit)
}

var pingNumber = regexp.MustCompile(`icmp_seq=[0-9]+`)

// TestPathRate checks that a rate is not exceeded.
func TestPathRate(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite(t)
	const size = 1 << 20
	peer := p.ServeTransfers(size)
	target := p.Start("supervise", "", "sleep", "600")
	p.Until("the run", target, func() bool {
		return exec.Command(kit.Bin("lklctl"), "exec", "-n", p.Instance, "--", "true").Run() == nil
	})
	for _, dev := range []string{"eth0", "eth1"} {
		pathVerb(p, dev, "rate", "2mbit")
	}
	began := time.Now()
	p.InStack("/usr/bin/python3", "-c", kit.TransferClient, p.Addr, peer.Port, "get", fmt.Sprint(size))
	took := time.Since(began)
	t.Logf("a megabyte over two paths of 2 Mbit/s in %v", took)
	if took < 1500*time.Millisecond { // 2.1 s, minus the time for the data that the queues can hold
		t.Error("that is too fast")
	}
	kit.Lklctl(t, "stop", "-n", p.Instance)
	target.Wait(kit.Limit)
}

// TestPathRawIP checks that drills work on a device without a link layer.
func TestPathRawIP(t *testing.T) {
	t.Parallel()
	p := kit.NewPhone(t)
	target := fetches(p, "mptcp", "supervise")
	before := p.InStack("tc", "-j", "qdisc", "show")
	pathVerb(p, "eth1", "delay", "30ms", "rate", "50mbit")
	if ms := ping(p, "eth1"); ms < 60 {
		t.Errorf("with 30 ms each way a ping takes %v ms", ms)
	}
	pathVerb(p, "eth1", "down")
	p.Until("no subflow there", target, func() bool { return onWire(p, "eth1") == 0 })
	pathVerb(p, "eth1", "clear")
	p.Until("one there again", target, func() bool { return onWire(p, "eth1") == 1 })
	if after := p.InStack("tc", "-j", "qdisc", "show"); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	kit.Lklctl(t, "stop", "-n", p.Instance)
	target.Wait(kit.Limit)
}

// TestPathFor checks that a step with a limited time is undone at its end, and also
// after Ctrl-C.
func TestPathFor(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite(t)
	target := fetches(p, "mptcp", "supervise")
	before := pathVerb(p)
	kit.Lklctl(t, "path", "-n", p.Instance, "eth1", "delay", "5ms", "--for", "100ms")
	if after := pathVerb(p); after != before {
		t.Errorf("after its time\n%s", after)
	}
	drill := kit.Start(t, exec.Command(kit.Bin("lklctl"), "path", "-n", p.Instance, "eth1", "silent", "--for", "10m"))
	p.Until("silence", target, func() bool { return strings.Contains(pathVerb(p), "silent") })
	drill.Signal(syscall.SIGINT)
	if r := drill.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("after Ctrl-C: %v", r)
	}
	if after := pathVerb(p); after != before {
		t.Errorf("after Ctrl-C\n%s", after)
	}
	kit.Lklctl(t, "stop", "-n", p.Instance)
	target.Wait(kit.Limit)
}
