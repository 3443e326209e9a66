// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/testutil"
)

// laneMoves sends and receives large pieces by one connection until that ends, and
// says how each way did.
const laneMoves = `
import socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
s.settimeout(None)
how = {}
def send():
    b = bytes(1 << 18)
    try:
        while True: s.sendall(b)
    except OSError as e: how["send"] = type(e).__name__
def recv():
    how["recv"] = "end"
    try:
        while s.recv(1 << 18): pass
    except OSError as e: how["recv"] = type(e).__name__
ways = [threading.Thread(target=f) for f in (send, recv)]
for w in ways: w.start()
for w in ways: w.join()
print(how["send"], how["recv"])
`

// A lanePeer takes and sends as much as it can by each connection.
type lanePeer struct {
	net.Listener
	conns chan *net.TCPConn // one for each that came
	ended chan struct{}     // for each that has
}

func (s *site) lanePeer() *lanePeer {
	p := &lanePeer{s.server.Listen(s.t, ":7000"), make(chan *net.TCPConn, 16), make(chan struct{}, 16)}
	go func() {
		for {
			c, err := p.Accept()
			if err != nil {
				return // the test is over
			}
			p.conns <- c.(*net.TCPConn)
			go func() {
				b := make([]byte, 256<<10)
				for {
					if _, err := c.Write(b); err != nil {
						return // what is taken tells why
					}
				}
			}()
			go func() {
				_, _ = io.Copy(io.Discard, c) // a reset is as good
				_ = c.Close()
				p.ended <- struct{}{}
			}()
		}
	}()
	return p
}

// Whoever is killed in the middle of it, and whichever way the peer goes: the others
// learn of it, and nothing is left.
func TestLaneKilled(t *testing.T) {
	t.Setenv(laneVariable, "on")
	s := newSite(t)
	peer := s.lanePeer()
	for _, tt := range []struct {
		name   string
		end    func(r *running, c *net.TCPConn)
		status int
		says   string // one of the words, of either way
	}{
		{"the program", func(r *running, _ *net.TCPConn) { kill(r.t, r.target()) }, 137, ""},
		{"lklrun", func(r *running, _ *net.TCPConn) { kill(r.t, r.proc.Pid()) }, 137, ""},
		{"lklhost", func(r *running, c *net.TCPConn) {
			kill(r.t, r.host())
			_ = c.Close() // a kernel that is gone says nothing
		}, 125, ""},
		{"the peer, by a reset", func(r *running, c *net.TCPConn) {
			if err := c.SetLinger(0); err != nil {
				r.t.Fatal(err)
			}
			_ = c.Close() // it is the end of all that it has
		}, 0, "ConnectionResetError BrokenPipeError end"},
		{"the peer, half", func(r *running, c *net.TCPConn) {
			if err := c.CloseWrite(); err != nil {
				r.t.Fatal(err)
			}
			testutil.WaitFor(r.t, "more to be sent", limit, func() bool { return r.counter("engine.lane.sent") > 256<<20 })
			_ = c.SetLinger(0)
			_ = c.Close()
		}, 0, "ConnectionResetError BrokenPipeError end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := testutil.Take(t, s.server)
			r := s.in(t).starts("vanilla", "/usr/bin/python3", "-c", laneMoves, serverAddr, "7000")
			testutil.WaitFor(t, "the run", limit, func() bool { _, err := os.Stat("/run/lklrun/" + r.name + "/ctl.sock"); return err == nil })
			var c *net.TCPConn
			testutil.WaitFor(t, "a connection", limit, func() bool {
				select {
				case c = <-peer.conns:
					return true
				default:
					return !r.proc.Running()
				}
			})
			if c == nil {
				out, errs := r.proc.Output()
				t.Fatalf("no connection:\n%s%s", out, errs)
			}
			testutil.WaitFor(t, "both ways in use", limit, func() bool {
				return r.counter("engine.lane.sent") > 16<<20 && r.counter("engine.bytes.received") > 16<<20
			})
			tt.end(r, c)
			got := r.proc.Wait(limit)
			if status(got) != tt.status {
				t.Errorf("it ended with %v, want %d", got, tt.status)
			}
			if words := strings.Fields(got.Stdout); tt.says != "" {
				if len(words) != 2 || !strings.Contains(tt.says, words[0]) || !strings.Contains(tt.says, words[1]) {
					t.Errorf("the program heard %q, want two of %s", got.Stdout, tt.says)
				}
			}
			testutil.WaitFor(t, "the peer's end", limit, func() bool { return len(peer.ended) > 0 })
			<-peer.ended
			before.Settles(limit)
		})
	}
}

// A server under --lane that is killed while it sends: its peer has what was sent,
// and then the end.
func TestLaneServerKilled(t *testing.T) {
	t.Setenv(laneVariable, "on")
	s := newSite(t)
	before := testutil.Take(t, s.server)
	r := s.starts("vanilla", "/usr/bin/python3", "-c", `
import socket
l = socket.create_server(("", 7000))
s = l.accept()[0]
b = bytes(1 << 18)
while True: s.sendall(b)
`)
	r.listens(7000)
	c, err := net.Dial("tcp", stackAddr+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, ended := make(chan int64, 1), make(chan error, 1)
	go func() {
		first, err := io.CopyN(io.Discard, c, 32<<20)
		got <- first
		if err == nil {
			_, err = io.Copy(io.Discard, c)
		}
		ended <- err
	}()
	if n := <-got; n != 32<<20 {
		t.Fatalf("%d bytes came: %v", n, <-ended)
	}
	if n := r.counter("engine.lane.sent"); n < 16<<20 {
		t.Errorf("%d bytes went by the lane", n)
	}
	kill(t, r.target())
	if got := r.proc.Wait(limit); status(got) != 137 {
		t.Errorf("it ended with %v, want 137", got)
	}
	testutil.WaitFor(t, "the peer's end", limit, func() bool { return len(ended) > 0 })
	before.Settles(limit)
}

// Two paths, one cut after the other, while the bytes go by the lane.
func TestLaneHandover(t *testing.T) {
	t.Setenv(laneVariable, "on")
	for _, what := range []string{"get", "put"} {
		t.Run(what, func(t *testing.T) { handover(newPathSite(t), "supervise", what, cutDown, handoverSize(t)) })
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatalf("killing %d: %v", pid, err)
	}
}
