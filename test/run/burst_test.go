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
