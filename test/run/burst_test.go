// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestBurst checks that a burst of answers from a server arrives completely, even if
// the program reads it later. No buffer on the way may be smaller than that of a host
// socket.
func TestBurst(t *testing.T) {
	const datagrams, size = 300, 1200
	testutil.NewSite(t)
	server, err := net.ListenPacket("udp", testutil.HostAddr+":0")
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
	script := fmt.Sprintf(`
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("%s", %s))
s.settimeout(20)
for i in range(5):
    s.send(b"go")
    for j in range(%d):
        assert len(s.recv(2000)) == %d
print("all")
`, testutil.HostAddr, port, datagrams, size)
	if out := testutil.OK(t, testutil.Limit, testutil.Lklrun("-q", "--if", "user", "--", "python3", "-c", script)); out != "all\n" {
		t.Errorf("%q", out)
	}
}
