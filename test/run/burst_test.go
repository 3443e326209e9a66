// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"net"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/burst_client.py
var burstClient string

// TestBurst checks that a burst of answers from a server arrives completely, even if the
// program reads it later. No buffer on the path may be smaller than that of a host
// socket.
func TestBurst(t *testing.T) {
	const datagrams, size = 300, 1200
	kit.NewSite(t)
	server, err := net.ListenPacket("udp", kit.HostAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		b := make([]byte, size)
		for {
			_, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			for range datagrams {
				_, _ = server.WriteTo(b, from) // errors show in the count
			}
		}
	}()
	_, port, err := net.SplitHostPort(server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	if out := kit.OK(t, kit.Limit, kit.Lklrun("-q", "--if", "user", "--", "python3", "-c", burstClient, kit.HostAddr, port, fmt.Sprint(datagrams), fmt.Sprint(size))); out != "all\n" {
		t.Errorf("%q", out)
	}
}

// ahead prints how many bytes of a sender fit between it and a peer that reads nothing.
const ahead = `
import select, socket
l = socket.create_server(("127.0.0.1", 0))
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, 25, 16384)  # TCP_NOTSENT_LOWAT
s.connect(l.getsockname())
c = l.accept()[0]
s.setblocking(False)
poll, n = select.poll(), 0
poll.register(s, select.POLLOUT)
while poll.poll(1500):
    try: n += s.send(bytes(65536))
    except BlockingIOError: pass
print(n)
`

// TestAhead checks that a sender does not get far ahead of a reader that does not read.
func TestAhead(t *testing.T) {
	var n int
	out := kit.OK(t, kit.Limit, kit.Lklrun("-q", "--name", kit.NewName(), "--engine", "supervise", "--stack", "vanilla", "--", "/usr/bin/python3", "-c", ahead))
	if _, err := fmt.Sscan(out, &n); err != nil || n > 4<<20 {
		t.Errorf("%s bytes, want at most %d", out, 4<<20)
	}
}
