// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// talks is a program that opens a connection to itself, with MPTCP if requested, and
// sends on it forever. It also opens the given number of idle connections.
const talks = `
import socket, sys, threading, time
mptcp, idle = sys.argv[1] == "mptcp", int(sys.argv[2])
l = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262 if mptcp else 0)
l.bind(("127.0.0.1", 80))
l.listen(128)
c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262 if mptcp else 0)
c.connect(("127.0.0.1", 80))
s, _ = l.accept()
def drain():
    while s.recv(1 << 16): pass
threading.Thread(target=drain, daemon=True).start()
keep = []
for i in range(idle):
    keep.append(socket.create_connection(("127.0.0.1", 80)))
    keep.append(l.accept()[0])
while True:
    c.sendall(bytes(10000))
    time.sleep(0.01)
`

// start starts a stack that runs talks.
func start(t testing.TB, library string, args ...string) (*lklhost.Host, *Collector) {
	t.Helper()
	n := kit.NewNetns(t, "stack")
	h := lklhost.Start(t, n, library, append([]string{"/usr/bin/python3", "-uc", talks}, args...)...).Boot(t)
	if library == "" {
		n.Run(t, "ip", "link", "set", "lo", "up")
	} else {
		cfg := stacknet.Config{
			Links: []stacknet.Link{{Name: "lo", Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.1.1/8")}}},
			MPTCP: &stacknet.MPTCPLimits{Subflows: 4, AddAddrAccepted: 4},
		}
		if err := stacknet.Configure(limit(t), h.Conn, cfg); err != nil {
			t.Fatal(err)
		}
		nl, err := stacknet.Open(limit(t), h.Conn)
		if err != nil {
			t.Fatal(err)
		}
		defer nl.Close()
		e := stacknet.Endpoint{Addr: cfg.Links[0].Addrs[0].Addr(), Ifindex: 1, Flags: stacknet.EndpointSubflow}
		if err := nl.Do(stacknet.AddEndpoint(e))[0]; err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Conn.Go(limit(t), ctlproto.Go{}); err != nil {
		t.Fatal(err)
	}
	info := &instance.Info{Dir: filepath.Dir(h.Socket), Running: true, State: instance.State{Name: "test", Engine: "supervise", HostPID: h.PID}}
	return h, New(h.Dial(t), info)
}

// sender returns the connection that sends.
func sender(s *Snapshot) *Connection {
	for i, c := range s.Connections {
		if c.Remote == "127.0.0.1:80" && c.BytesSent.N > 0 {
			return &s.Connections[i]
		}
	}
	return nil
}

func TestCollector(t *testing.T) {
	t.Run("library", func(t *testing.T) { testCollector(t, lklhost.Library(t), "mptcp", 1) })
	t.Run("host", func(t *testing.T) { testCollector(t, "", "tcp", 1) })
}

func testCollector(t *testing.T, library, proto string, subflows int) {
	h, c := start(t, library, proto, "3")
	var last, s *Snapshot
	var from *Connection
	kit.WaitFor(t, "a connection that sends", 30*time.Second, func() bool {
		var err error
		last = s
		if s, err = c.Snapshot(limit(t)); err != nil {
			t.Fatal(err)
		}
		if last == nil && (s.Interval != 0 || s.CPU.Stack != nil || s.Totals.RetransRate != nil) {
			t.Fatalf("the first snapshot has rates: %+v", s)
		}
		from = sender(s)
		return last != nil && from != nil && len(from.Subflows) == subflows && from.TxRate.N > 0 && s.Links[0].TxRate.N > 0 &&
			s.CPU.Stack != nil && s.Totals.Connections >= 8 && sender(last) != nil && sender(last).ID == from.ID
	})
	if from.Proto != proto || from.State != "ESTAB" || from.PID == 0 || from.Process != "python3" || (from.Token != "") != (proto == "mptcp") {
		t.Errorf("the connection: %+v", from)
	}
	if was := sender(last); from.BytesSent.N <= was.BytesSent.N {
		t.Errorf("it had sent %v, then %v", was.BytesSent, from.BytesSent)
	}
	// The rate must agree with the byte counts of two snapshots.
	if want := float64(8*(from.BytesSent.N-sender(last).BytesSent.N)) / s.Interval; abs(float64(from.TxRate.N)-want) > 1 {
		t.Errorf("%v bit/s, want %v", from.TxRate, want)
	}
	for _, f := range from.Subflows {
		if f.Iface != "lo" || !f.RTT.Known || !f.Cwnd.Known || f.State != "ESTAB" {
			t.Errorf("subflow: %+v", f)
		}
	}
	if lo := s.Links[0]; lo.Name != "lo" || lo.State != "up" || lo.TxBytes.N < sender(last).BytesSent.N {
		t.Errorf("lo: %+v", lo)
	}
	if s.CPU.Target == nil || *s.CPU.Stack < 0 || s.Totals.TxRate.N != 0 {
		t.Errorf("CPU %+v, totals %+v", s.CPU, s.Totals)
	}

	// A paused stack host does not answer. Its end is then reported.
	kit.Pause(t, h.PID, 10*time.Second)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 100*time.Millisecond, stackconn.ErrNoAnswer)
	defer cancel()
	if _, err := c.Snapshot(ctx); !errors.Is(err, ErrSilent) {
		t.Errorf("of a stack host that is stopped: %v", err)
	}
	h.Proc.Signal(syscall.SIGKILL)
	h.Proc.Wait(20 * time.Second)
	if _, err := c.Snapshot(limit(t)); !errors.Is(err, ErrEnded) {
		t.Errorf("of one that has ended: %v", err)
	}
}

func abs(f float64) float64 { return max(f, -f) }
