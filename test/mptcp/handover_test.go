// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// stallLimit is the limit for a stall. On a busy machine, a measured stall is a quarter
// of it. A silent path that is still used carries 32 KiB in 200 ms, so a megabyte would
// need about 6 s.
const stallLimit = 4 * time.Second

// handoverSize is the size of the transfers; HANDOVER_MB=500 selects the long form.
func handoverSize(t *testing.T) int64 {
	return int64(kit.Setting(t, "HANDOVER_MB", 80)) << 20
}

// TestHandover cuts one of two paths in the middle of a transfer, restores it, then cuts
// the other. The transfer must complete, and its pauses must be short.
func TestHandover(t *testing.T) {
	size := handoverSize(t)
	for _, c := range []struct {
		engine, what, paths string
		kit.Cut
	}{
		{"supervise", "get", "taps", kit.CutDown},
		{"supervise", "put", "taps", kit.CutDown},
		{"supervise", "get", "taps", kit.CutSilent}, // the engine makes no difference here
		{"supervise", "put", "taps", kit.CutSilent},
		{"supervise", "get", "phone", kit.CutDown},
		{"preload", "get", "sixes", kit.CutDown},
		{"preload", "put", "taps", kit.CutDown},
		{"preload", "put", "phone", kit.CutDown},
	} {
		t.Run(strings.Join([]string{c.engine, c.what, c.paths, c.Name}, " "), func(t *testing.T) {
			t.Parallel()
			lay := map[string]func(*testing.T) *kit.PathSite{"taps": kit.NewPathSite, "phone": kit.NewPhone, "sixes": kit.NewPathSite6}[c.paths]
			handover(lay(t), c.engine, c.what, c.Cut, size)
		})
	}
}

func handover(p *kit.PathSite, engine, what string, c kit.Cut, size int64) {
	peer := p.Serve(what, size)
	// The server's kernel decides when it uses a path again, so the server sends data
	// until then.
	peer.More.Store(true)
	target := p.Start(engine, "", "/usr/bin/python3", "-c", kit.TransferClient, p.Addr, peer.Port, what, fmt.Sprint(size))
	p.Until("a fifth of it", target, func() bool { return peer.Moved.Load() > size/5 })
	c.Away(p, 0)
	p.Until("a third of it, by one path", target, func() bool { return peer.Moved.Load() > size/3 })
	before := p.Carried(0)
	c.Restore(p, 0)
	p.Until("the first path in use again", target, func() bool { return p.Carried(0) > before+1<<20 })
	c.Away(p, 1)
	peer.More.Store(false)
	stall := p.Ended(target, peer, what, size)
	p.Logf("%d MB, both paths cut in turn: the longest time without progress was %v", size>>20, stall.Round(time.Millisecond))
	if stall > stallLimit {
		p.Errorf("a stall of %v", stall)
	}
	if _, errs := target.Output(); c.Name == kit.CutDown.Name && !strings.Contains(errs, "eth0 has carrier again; MPTCP connections use it") {
		p.Errorf("-v does not tell of it:\n%s", errs)
	}
}

// TestHandoverBlink checks that a path that disappears and returns at once is used again.
// Queued data on the other path delays the announcement that the path is gone, but not
// the announcement that it is back.
func TestHandoverBlink(t *testing.T) {
	t.Parallel()
	const size = 160 << 20
	p := kit.NewPathSite(t)
	p.Host.Run(t, "tc", "qdisc", "replace", "dev", "v1", "root", "tbf", "rate", kit.PathRate, "burst", "256kb", "latency", "500ms")
	peer := p.ServeUploads()
	target := p.Start("supervise", "", "/usr/bin/python3", "-c", kit.TransferClient, p.Addr, peer.Port, "put", fmt.Sprint(size))
	log := func(what string, n int) func() bool {
		return func() bool {
			_, errs := target.Output()
			return strings.Count(errs, what) == n
		}
	}
	for n := 1; n <= 3; n++ {
		p.Until("a long queue", target, func() bool { return peer.Moved.Load() > int64(n)*size/5 })
		kit.CutDown.Away(p, 0)
		p.Until("the endpoint gone", target, log("mptcp endpoint del id 1", n))
		kit.CutDown.Restore(p, 0)
		p.Until("it is back", target, log("eth0 has carrier again; MPTCP connections use it", n))
		before := p.Carried(0)
		p.Until("the path in use again", target, func() bool { return p.Carried(0) > before+2<<20 })
	}
	p.Ended(target, peer, "put", size)
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
	p := kit.NewPathSite(t)
	peer := p.ServeTransfers(size)
	target := p.Start("supervise", "", "/usr/bin/python3", "-c", kit.TransferClient, "10.74.1.1", peer.Port, "get", fmt.Sprint(size))
	p.Until("a quarter of it", target, func() bool { return peer.Moved.Load() > size/4 })
	for n := range 2 {
		kit.CutDown.Away(p, n)
	}
	over := time.NewTimer(outage) // the outage under test, not a wait for an event
	<-over.C
	for n := range 2 {
		kit.CutDown.Restore(p, 1-n)
	}
	stall := p.Ended(target, peer, "get", size)
	t.Logf("no path for %v: %v without progress", outage, stall.Round(time.Millisecond))
	if stall < outage*9/10 {
		t.Errorf("%v without progress: the paths were not cut", stall)
	}
}

// TestHandoverAlone checks a connection that has no other path, because its peer accepts
// no more subflows. The connection must survive a cut of its only path.
func TestHandoverAlone(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	p := kit.NewPathSite(t)
	p.Server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "0", "add_addr_accepted", "0")
	peer := p.ServeTransfers(size)
	target := p.Start("supervise", "", "/usr/bin/python3", "-c", kit.TransferClient, p.Addr, peer.Port, "get", fmt.Sprint(size))
	p.Until("a third of it", target, func() bool { return peer.Moved.Load() > size/3 })
	kit.CutDown.Away(p, 0)
	p.Until("the endpoint stays", target, func() bool {
		_, errs := target.Output()
		return strings.Contains(errs, "its MPTCP endpoint (10.74.1.2) is kept, because connections have no other path (1)")
	})
	kit.CutDown.Restore(p, 0)
	stall := p.Ended(target, peer, "get", size)
	t.Logf("%v without progress", stall.Round(time.Millisecond))
	if n := p.Carried(1); n > 64<<10 {
		t.Errorf("the other path has carried %d bytes", n)
	}
}

// TestHandoverBackup checks that a backup carries no data while the other path works.
func TestHandoverBackup(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	p := kit.NewPathSite(t)
	peer := p.ServeTransfers(size)
	target := p.Start("supervise", ",backup", "/usr/bin/python3", "-c", kit.TransferClient, "10.74.1.1", peer.Port, "get", fmt.Sprint(size))
	p.Until("a third of it", target, func() bool { return peer.Moved.Load() > size/3 })
	var conns []struct {
		Subflows []struct {
			Iface   string
			Backup  bool
			TCPInfo struct {
				BytesReceived int64 `json:"bytes_received"`
			} `json:"tcp_info"`
		}
	}
	text := kit.Lklctl(t, "-n", p.Instance, "-o", "json", "mptcp")
	if err := json.Unmarshal([]byte(text), &conns); err != nil || len(conns) != 1 || len(conns[0].Subflows) != 2 {
		t.Fatalf("lklctl mptcp: %v\n%s", err, text)
	}
	for _, s := range conns[0].Subflows {
		t.Logf("%s, backup %v: the stack has received %d bytes", s.Iface, s.Backup, s.TCPInfo.BytesReceived)
		if idle := s.TCPInfo.BytesReceived < 64<<10; idle != s.Backup || s.Backup != (s.Iface == "eth1") {
			t.Errorf("%+v", s)
		}
	}
	first, second := p.Carried(0), p.Carried(1)
	t.Logf("the server's devices: %d bytes and %d", first, second)
	if second > 64<<10 || first < size/4 {
		t.Error("the backup is used, or nothing is")
	}
	kit.CutDown.Away(p, 0)
	p.Until("the backup in use", target, func() bool { return p.Carried(1) > second+size/8 })
	stall := p.Ended(target, peer, "get", size)
	t.Logf("after the cut: %d bytes and %d; the longest time without progress was %v", p.Carried(0), p.Carried(1), stall.Round(time.Millisecond))
}

// TestHandoverFlags checks how the other flags appear at the peer.
func TestHandoverFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options  string
		subflows int
	}{
		{"", 2},
		{",fullmesh", 3}, // eth1 also connects to the peer's second address
		{",signal", 1},   // announces the address; the peer's kernel does not use the announcement here
	} {
		p := kit.NewPathSite(t)
		p.Server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "0")
		if c.options == ",fullmesh" {
			p.Server.Run(t, "ip", "mptcp", "endpoint", "add", "10.74.2.1", "signal")
		}
		monitor := kit.Start(t, p.Server.Command("ip", "mptcp", "monitor"))
		peer := p.ServeTransfers(1)
		target := p.Start("supervise", c.options, "/usr/bin/python3", "-uc", `
import socket, sys, time
s = socket.create_connection(("10.74.1.1", int(sys.argv[1])), 60)
s.sendall(b"w")
time.sleep(600)`, peer.Port)
		subflows := func() int {
			return len(kit.Lines(p.Server.Run(t, "ss", "-tnH", "state", "established", "( sport = :"+peer.Port+" )")))
		}
		if c.options == ",signal" {
			p.Until("the announcement", target, func() bool {
				out, _ := monitor.Output()
				return strings.Contains(out, "ANNOUNCED") && strings.Contains(out, "addr4=10.74.2.2")
			})
		}
		p.Until(fmt.Sprintf("%d subflows with %q", c.subflows, c.options), target, func() bool { return subflows() == c.subflows })
		want := map[string]string{"": "subflow dev eth1", ",fullmesh": "subflow fullmesh dev eth1", ",signal": "signal dev eth1"}[c.options]
		if text := p.InStack("ip", "mptcp", "endpoint"); !strings.Contains(text, "10.74.2.2 id 2 "+want) {
			t.Errorf("%q: no endpoint %q in\n%s", c.options, want, text)
		}
		kit.Lklctl(t, "stop", "-n", p.Instance)
		target.Wait(kit.Limit)
	}
}

// TestHandoverByHand checks that an address added by a program in the stack becomes a
// full path, and that new connections use a path that works.
func TestHandoverByHand(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite(t)
	p.Server.Run(t, "ip", "addr", "add", "10.74.3.1/24", "dev", "s1")
	peer := p.ServeTransfers(1)
	target := p.Start("supervise", "", "sleep", "600")
	has := func(yes bool, what string, args ...string) {
		t.Helper()
		p.Until(fmt.Sprintf("%q there: %v", what, yes), target, func() bool { return strings.Contains(p.InStack(args...), what) == yes })
	}
	p.Until("the run", target, func() bool {
		return exec.Command(kit.Bin("lklctl"), "exec", "-n", p.Instance, "--", "true").Run() == nil
	})
	has(true, "10.74.2.2 id 2 subflow dev eth1", "ip", "mptcp", "endpoint")
	p.InStack("ip", "addr", "add", "10.74.3.2/24", "dev", "eth1")
	has(true, "10.74.3.2 id 3 subflow dev eth1", "ip", "mptcp", "endpoint")
	has(true, "from 10.74.3.2 lookup 101", "ip", "rule")
	has(true, "10.74.3.0/24 dev eth1", "ip", "route", "show", "table", "101")
	p.InStack("ip", "addr", "del", "10.74.3.2/24", "dev", "eth1")
	has(false, "10.74.3.2", "ip", "mptcp", "endpoint")

	connects := func() string {
		return strings.TrimSpace(p.InStack("/usr/bin/python3", "-c", `
import socket, sys
s = socket.create_connection(("10.74.1.1", int(sys.argv[1])), 30)
print(s.getsockname()[0])`, peer.Port))
	}
	if from := connects(); from != "10.74.1.2" {
		t.Errorf("a connection comes from %s, want the first interface's address", from)
	}
	// lklrun keeps the endpoint of a connection that is still to end and has no other path.
	has(false, ":"+peer.Port, "ss", "-MnH")
	kit.CutDown.Away(p, 0)
	has(false, "10.74.1.2", "ip", "mptcp", "endpoint")
	has(true, "NO-CARRIER", "ip", "-o", "link", "show", "eth0")
	if from := connects(); from != "10.74.2.2" {
		t.Errorf("with eth0 cut a connection comes from %s, want the second interface's address", from)
	}
	kit.CutDown.Restore(p, 0)
	has(true, "10.74.1.2 id 1 subflow dev eth0", "ip", "mptcp", "endpoint")
}
