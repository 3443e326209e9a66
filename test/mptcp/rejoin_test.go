// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	_ "embed"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// rejoinLimit is the time within which a path that becomes usable must be used. lklrun
// retries after about 1, 2, 4 ... s; the tests make a path usable after two or three
// attempts.
const rejoinLimit = 12 * time.Second

//go:embed testdata/rejoin_asks.py
var rejoinAsks string

// A rejoinSite is a PathSite with a target whose connections wait.
type rejoinSite struct {
	*kit.PathSite
	target *kit.Proc
	port   string   // the server's
	lines  *os.File // each line opens another connection
}

func runWaiting(p *kit.PathSite, engine string) *rejoinSite {
	p.Helper()
	fifo := filepath.Join(kit.Dir(p), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		p.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = f.Close() })
	r := &rejoinSite{PathSite: p, port: p.ServeTransfers(1).Port, lines: f}
	r.target = p.Start(engine, "", "/usr/bin/python3", "-uc", rejoinAsks, p.Addr, r.port, fifo)
	return r
}

// connect makes the target open another connection.
func (r *rejoinSite) connect() {
	r.Helper()
	if _, err := r.lines.WriteString("\n"); err != nil {
		r.Fatal(err)
	}
}

// end ends the run.
func (r *rejoinSite) end() {
	r.Helper()
	kit.Lklctl(r.T, "stop", "-n", r.Instance)
	r.target.Wait(kit.Limit)
}

// subflows returns the remote addresses and ports of the server's subflows.
func (r *rejoinSite) subflows(from string) (peers []string) {
	r.Helper()
	for _, line := range kit.Lines(r.Server.Run(r.T, "ss", "-tnH", "state", "established", "( sport = :"+r.port+" )")) {
		f := strings.Fields(line)
		if peer := strings.NewReplacer("[", "", "]", "", "::ffff:", "").Replace(f[len(f)-1]); strings.HasPrefix(peer, from) {
			peers = append(peers, peer)
		}
	}
	return peers
}

// comes waits for n subflows from an address.
func (r *rejoinSite) comes(what, from string, n int) {
	r.Helper()
	r.Until(what, r.target, func() bool { return len(r.subflows(from)) == n })
}

// soon is like comes, but with rejoinLimit.
func (r *rejoinSite) soon(what, from string, n int) {
	r.Helper()
	since := time.Now()
	r.comes(what, from, n)
	r.Logf("%s: %v", what, time.Since(since).Round(time.Millisecond))
	if took := time.Since(since); took > rejoinLimit {
		r.Errorf("%s: %v", what, took)
	}
}

// tries waits until a join from an address has been retried n times.
func (r *rejoinSite) tries(addr string, n int) {
	r.Helper()
	r.Until("another try", r.target, func() bool {
		_, errs := r.target.Output()
		return strings.Count(errs, "MPTCP connections retry "+addr) >= n
	})
}

// TestRejoinRefused checks that a join that the peer refuses is retried on the
// connection that lacks it. Another connection, with a subflow on the same path, must
// not change.
func TestRejoinRefused(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			r := runWaiting(kit.NewPathSite(t), engine)
			r.comes("both paths of the first connection", "10.74.2.2:", 1)
			first := r.subflows("10.74.2.2:")
			r.Server.Run(t, "nft", `add table inet refuse
				add chain inet refuse in { type filter hook input priority 0; }
				add rule inet refuse in iifname "s1" tcp flags & (syn|ack) == syn reject with tcp reset`)
			r.connect()
			r.comes("the second connection", "10.74.1.2:", 2)
			r.tries("10.74.2.2", 2)
			if now := r.subflows("10.74.2.2:"); !slices.Equal(now, first) {
				t.Errorf("on the path that refuses: %v, want %v", now, first)
			}
			r.Server.Run(t, "nft", "delete", "table", "inet", "refuse")
			r.soon("the path is used once it can be", "10.74.2.2:", 2)
			if now := r.subflows("10.74.2.2:"); !slices.Contains(now, first[0]) {
				t.Errorf("the first connection had its subflow from %s, and there are %v", first[0], now)
			}
			r.end()
		})
	}
}

// TestRejoinSilent checks a path whose neighbour does not answer when a connection begins
// to use it.
func TestRejoinSilent(t *testing.T) {
	t.Parallel()
	r := runWaiting(kit.NewPathSite(t), "supervise")
	r.comes("both paths of the first connection", "10.74.2.2:", 1)
	first := r.subflows("10.74.2.2:")
	kit.CutSilent.Away(r.PathSite, 1)
	r.InStack("ip", "neigh", "flush", "dev", "eth1")
	r.connect()
	r.comes("the second connection", "10.74.1.2:", 2)
	r.tries("10.74.2.2", 1)
	kit.CutSilent.Restore(r.PathSite, 1)
	r.soon("the path is used once it can be", "10.74.2.2:", 2)
	if now := r.subflows("10.74.2.2:"); !slices.Contains(now, first[0]) {
		t.Errorf("the first connection had its subflow from %s, and there are %v", first[0], now)
	}
	r.end()
}

// TestRejoinReset checks that a subflow that the peer resets is created again. The peer
// resets the second subflow, and then the first one. In the connection, the first one's
// address has a different id than its endpoint.
func TestRejoinReset(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			r := runWaiting(kit.NewPathSite(t), engine)
			r.connect()
			r.comes("two connections", "10.74.1.2:", 2)
			r.comes("both with two paths", "10.74.2.2:", 2)
			for _, from := range []string{"10.74.2.2:", "10.74.1.2:"} {
				before := r.subflows("10.74.")
				victim := r.subflows(from)[0]
				r.Server.Run(t, "ss", "-K", "-tn", "dst", victim)
				r.Until("the end of a subflow", r.target, func() bool { return !slices.Contains(r.subflows(from), victim) })
				r.soon(victim+" is replaced", from, 2)
				now := r.subflows("10.74.")
				for _, s := range before {
					if s != victim && !slices.Contains(now, s) {
						t.Errorf("%s was reset, and %s has gone: %v", victim, s, now)
					}
				}
			}
			r.end()
		})
	}
}

// TestRejoinRoute checks a route that is added after its interface's address.
func TestRejoinRoute(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite6(t)
	p.Ifs[1] = strings.TrimSuffix(p.Ifs[1], ",gw6=fd74:2::1")
	r := runWaiting(p, "supervise")
	r.comes("a connection by one path", "fd74:1::2:", 1)
	r.Until("the second interface has an endpoint", r.target, func() bool {
		return strings.Contains(r.InStack("ip", "mptcp", "endpoint"), "fd74:2::2")
	})
	if now := r.subflows("fd74:2::2:"); len(now) > 0 {
		t.Errorf("without a route: %v", now)
	}
	r.InStack("ip", "-6", "route", "add", "default", "via", "fd74:2::1", "dev", "eth1", "metric", "2000")
	r.soon("the path is used once it has a route", "fd74:2::2:", 1)
	r.end()
}

//go:embed testdata/take_pieces.py
var takePieces string

// TestMPTCPPieces sends small pieces over two paths. The sender alternates between the
// paths, because nothing is acknowledged yet. The pieces on the faster path fill the
// connection's memory and wait for earlier ones. When the earlier pieces arrive, the
// reader must get them, although the memory limit is reached. Otherwise, three of four
// connections stall.
func TestMPTCPPieces(t *testing.T) {
	t.Parallel()
	const conns, pieces = 4, 400
	p := kit.NewPathSite(t)
	l, port := p.Listen()
	target := p.Start("supervise", "", "/usr/bin/python3", "-c", takePieces, p.Addr, port, "4")
	var all []*net.TCPConn
	for range conns {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(kit.TransferLimit)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil { // if this byte stays unread, the close causes a reset
			t.Fatal(err)
		}
		all = append(all, c.(*net.TCPConn)) // Go sets TCP_NODELAY by default, so a piece is a packet
	}
	p.Until("two subflows each", target, func() bool { return onWire(p, "eth0") == conns && onWire(p, "eth1") == conns })
	pathVerb(p, "eth0", "delay", "300ms", "--direction", "in")
	pathVerb(p, "eth1", "delay", "1500ms", "--direction", "in")
	for n := range uint64(pieces) {
		for _, c := range all {
			if _, err := c.Write(binary.NativeEndian.AppendUint64(nil, n)); err != nil {
				t.Fatalf("piece %d: %v; the stack: %s\nthe server: %s", n, err, kit.Lklctl(p.T, "-n", p.Instance, "mptcp"), p.Server.Run(p, "ss", "-tinmM"))
			}
		}
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.RunsOut(target)
	if r := target.Wait(kit.Limit); r.Status != 0 || r.Stdout != strings.Repeat("400\n", conns) {
		t.Errorf("of %d pieces in their order: %v", pieces, r)
	}
}
