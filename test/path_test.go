// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	testutil "github.com/lklrun/lklrun/test/kit"
)

// fetchFor is a target that fetches from the server until it is stopped.
const fetchFor = `
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 600)
s.sendall(b"g")
while s.recv(1 << 18): pass
`

// fetches starts the target on a stack and waits for two subflows.
func (p *pathSite) fetches(stack, engine string) *testutil.Proc {
	p.Helper()
	peer := p.serveMoves(1 << 40)
	cmd := []string{
		testutil.Bin("lklrun"), "--name", p.name, "--stack", stack, "--engine", engine,
		"--if", p.ifs[0], "--if", p.ifs[1], "--", "/usr/bin/python3", "-c", fetchFor, p.addr, peer.port,
	}
	target := testutil.Start(p, p.host.Command(cmd...))
	p.until("a megabyte", target, func() bool { return peer.moved.Load() > 1<<20 })
	return target
}

// path applies a step of `lklctl path`, or shows the steps in effect.
func (p *pathSite) path(args ...string) string {
	p.Helper()
	return lklctl(p.T, append([]string{"path", "-n", p.name}, args...)...)
}

// onWire returns the number of subflows on an interface.
func (p *pathSite) onWire(iface string) (n int) {
	p.Helper()
	var conns []struct {
		Subflows []struct{ Iface, State string }
	}
	text := lklctl(p.T, "-n", p.name, "-o", "json", "mptcp")
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
	p := newPathSite(t)
	target := p.fetches("bbr", "supervise")
	p.inStack("tc", "qdisc", "replace", "dev", "eth1", "root", "handle", "9:", "fq", "limit", "5000", "flow_limit", "90")
	before := p.inStack("tc", "-j", "qdisc", "show")
	links := p.inStack("ip", "-o", "link")

	p.path("eth1", "delay", "40ms", "loss", "0.5%")
	p.path("eth1", "rate", "20mbit")
	if text := p.path("eth1"); !strings.Contains(text, "delay 40ms rate 20.0Mbit/s loss 0.5%") {
		t.Errorf("it shows\n%s", text)
	}
	tc := p.inStack("tc", "qdisc", "show")
	if n := strings.Count(tc, "delay 40ms loss 0.5% rate 20Mbit"); n != 2 || !strings.Contains(tc, "qdisc fq 9: dev eth1 root") {
		t.Errorf("tc(8) sees %d of them\n%s", n, tc)
	}
	p.path("eth1", "loss", "0", "rate", "0") // the delay remains
	if ms := p.ping("eth1"); ms < 80 {
		t.Errorf("with 40 ms each way a ping takes %v ms", ms)
	}
	p.path("eth1", "duplicate", "100%", "--direction", "in")
	if out, _ := p.pings("eth1", pingWait); !strings.Contains(out, "DUP!") {
		t.Errorf("nothing comes twice:\n%s", out)
	}
	p.path("eth1", "silent")
	if out, err := p.pings("eth1", 1); err == nil {
		t.Errorf("on a silent path something comes:\n%s", out)
	}
	p.path("eth1", "clear")
	if after := p.inStack("tc", "-j", "qdisc", "show"); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	if after := p.inStack("ip", "-o", "link"); after != links {
		t.Errorf("before\n%safter\n%s", links, after)
	}
	p.badSteps(before)
	lklctl(t, "stop", "-n", p.name)
	target.Wait(limit)
}

// TestPathDown checks that MPTCP leaves a path whose cable is pulled, and uses it again
// afterwards.
func TestPathDown(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := newPathSite(t)
			target := p.fetches("mptcp", engine)
			before := p.path()
			p.until("a subflow there", target, func() bool { return p.onWire("eth1") == 1 })
			p.path("eth1", "down", "delay", "1ms")
			if text := p.path("eth1"); !strings.Contains(text, "eth1  no       both           0+0  silent delay 1ms") {
				t.Errorf("it shows\n%s", text)
			}
			p.until("none there", target, func() bool { return p.onWire("eth1") == 0 })
			p.path("eth1", "up")
			p.until("one there again", target, func() bool { return p.onWire("eth1") == 1 })
			p.path("eth1", "clear")
			if after := p.path(); after != before {
				t.Errorf("before\n%safter\n%s", before, after)
			}
			lklctl(t, "stop", "-n", p.name)
			target.Wait(limit)
		})
	}
}

// badSteps checks steps that are refused in one line, and change nothing.
func (p *pathSite) badSteps(before string) {
	p.Helper()
	for _, args := range [][]string{
		{"eth1", "delay", "40ms", "loss", "200%"}, {"eth7", "down"}, {"eth1", "delay", "1ms", "reorder"}, {"eth1", "reorder", "5%"}, {"lo", "down"}, {"eth7"},
		{"eth1", "down", "--direction", "in"}, {"eth1", "--for", "3s"}, {"--script", "-"},
	} {
		r := testutil.Start(p, exec.Command(testutil.Bin("lklctl"), append([]string{"path", "-n", p.name}, args...)...)).Wait(limit)
		if r.Status != 2 || strings.Count(r.Stderr, "\n") != 1 {
			p.Errorf("%q: %v", args, r)
		}
	}
	if after := p.inStack("tc", "-j", "qdisc", "show"); after != before {
		p.Errorf("before\n%safter\n%s", before, after)
	}
}

// pings pings the server over an interface, five times, because queues on the path may
// be full.
func (p *pathSite) pings(iface string, wait int) (string, error) {
	p.Helper()
	to := fmt.Sprintf("10.74.%d.1", 1+strings.Index("eth0 eth1", iface)/5)
	out, err := exec.Command(testutil.Bin("lklctl"), "exec", "-n", p.name, "--", "ping", "-I", iface, "-c", "5", "-i", "0.2", "-W", strconv.Itoa(wait), to).CombinedOutput()
	return string(out), err
}

// pingWait is the timeout for an expected answer, in seconds.
const pingWait = 20

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// ping returns the shortest time of an answer in milliseconds.
func (p *pathSite) ping(iface string) float64 {
	p.Helper()
	out, err := p.pings(iface, pingWait)
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

// TestPathRate checks that a rate is not exceeded.
func TestPathRate(t *testing.T) {
	t.Parallel()
	p := newPathSite(t)
	const size = 1 << 20
	peer := p.serveMoves(size)
	target := p.run("supervise", "", "sleep", "600")
	p.until("the run", target, func() bool {
		return exec.Command(testutil.Bin("lklctl"), "exec", "-n", p.name, "--", "true").Run() == nil
	})
	for _, dev := range []string{"eth0", "eth1"} {
		p.path(dev, "rate", "2mbit")
	}
	began := time.Now()
	p.inStack("/usr/bin/python3", "-c", handoverAsks, p.addr, peer.port, "get", fmt.Sprint(size))
	took := time.Since(began)
	t.Logf("a megabyte over two paths of 2 Mbit/s in %v", took)
	if took < 1500*time.Millisecond { // 2.1 s, minus the data that the queues can hold
		t.Error("that is too fast")
	}
	lklctl(t, "stop", "-n", p.name)
	target.Wait(limit)
}

// TestPathRawIP checks that drills work on a device without link layer.
func TestPathRawIP(t *testing.T) {
	t.Parallel()
	p := newPhone(t)
	target := p.fetches("mptcp", "supervise")
	before := p.inStack("tc", "-j", "qdisc", "show")
	p.path("eth1", "delay", "30ms", "rate", "50mbit")
	if ms := p.ping("eth1"); ms < 60 {
		t.Errorf("with 30 ms each way a ping takes %v ms", ms)
	}
	p.path("eth1", "down")
	p.until("no subflow there", target, func() bool { return p.onWire("eth1") == 0 })
	p.path("eth1", "clear")
	p.until("one there again", target, func() bool { return p.onWire("eth1") == 1 })
	if after := p.inStack("tc", "-j", "qdisc", "show"); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	lklctl(t, "stop", "-n", p.name)
	target.Wait(limit)
}

// TestPathFor checks that a step with a limited time is undone at its end, and also
// after Ctrl-C.
func TestPathFor(t *testing.T) {
	t.Parallel()
	p := newPathSite(t)
	target := p.fetches("mptcp", "supervise")
	before := p.path()
	lklctl(t, "path", "-n", p.name, "eth1", "delay", "5ms", "--for", "100ms")
	if after := p.path(); after != before {
		t.Errorf("after its time\n%s", after)
	}
	drill := testutil.Start(t, exec.Command(testutil.Bin("lklctl"), "path", "-n", p.name, "eth1", "silent", "--for", "10m"))
	p.until("silence", target, func() bool { return strings.Contains(p.path(), "silent") })
	drill.Signal(syscall.SIGINT)
	if r := drill.Wait(limit); r.Status != 0 {
		t.Errorf("after Ctrl-C: %v", r)
	}
	if after := p.path(); after != before {
		t.Errorf("after Ctrl-C\n%s", after)
	}
	lklctl(t, "stop", "-n", p.name)
	target.Wait(limit)
}
