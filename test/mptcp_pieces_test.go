// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"
)

// takePieces reads eight-byte numbers that count up from 0, on several connections at
// once, and prints how many it received on each.
const takePieces = `
import socket, struct, sys, threading
all = []
for _ in range(int(sys.argv[3])):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"w")
    all.append(s)
def take(s):
    data = bytearray()
    while piece := s.recv(65536): data += piece
    print(sum(n == i for i, (n,) in enumerate(struct.iter_unpack("=Q", data))), flush=True)
for s in all: threading.Thread(target=take, args=(s,)).start()
`

// TestMPTCPPieces sends small pieces over two paths alternately, because nothing is
// acknowledged yet. Those on the faster path fill the connection's memory and wait for
// earlier ones. When these arrive, the reader must get them: a memory limit must not
// hold back the data that it waits for. Otherwise, three of four connections stall.
func TestMPTCPPieces(t *testing.T) {
	t.Parallel()
	const conns, pieces = 4, 400
	p := newPathSite(t)
	l, port := p.listen()
	target := p.run("supervise", "", "/usr/bin/python3", "-c", takePieces, p.addr, port, "4")
	var all []*net.TCPConn
	for range conns {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(handoverLimit)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil { // unread data would cause a reset at the end
			t.Fatal(err)
		}
		all = append(all, c.(*net.TCPConn)) // Go sets TCP_NODELAY by default, so a piece is a packet
	}
	p.until("two subflows each", target, func() bool { return p.onWire("eth0") == conns && p.onWire("eth1") == conns })
	p.path("eth0", "delay", "300ms", "--direction", "in")
	p.path("eth1", "delay", "1500ms", "--direction", "in")
	for n := range uint64(pieces) {
		for _, c := range all {
			if _, err := c.Write(binary.NativeEndian.AppendUint64(nil, n)); err != nil {
				t.Fatalf("piece %d: %v; the stack: %s\nthe server: %s", n, err, lklctl(p.T, "-n", p.name, "mptcp"), p.server.Run(p, "ss", "-tinmM"))
			}
		}
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.runsOut(target)
	if r := target.Wait(limit); r.Status != 0 || r.Stdout != strings.Repeat("400\n", conns) {
		t.Errorf("of %d pieces in their order: %v", pieces, r)
	}
}
