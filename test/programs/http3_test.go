// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestHTTP3 checks downloads over HTTP/3 by quic-go, which uses recvmmsg(), UDP_SEGMENT
// and ancillary data. QUIC itself detects wrong bytes. The client is on the stack, and
// then the server.
func TestHTTP3(t *testing.T) {
	s := kit.NewSite(t)
	program := kit.Program("http3")
	const size = "30000000"
	check := func(got string) {
		t.Helper()
		if !strings.HasSuffix(got, " Gbit/s\n") {
			t.Errorf("the client: %q", got)
		}
	}
	for _, address := range []string{kit.ServerAddr, kit.ServerAddr6} {
		server := kit.Start(t, s.Server.Command(program, "serve", address, "5443"))
		kit.WaitFor(t, "the server", kit.Limit, func() bool { return s.Server.Listening(t, "u", 5443) })
		check(kit.OK(t, 4*kit.Limit, s.OnTap(program, "get", address, "5443", size)))
		server.Signal(15)
		server.Wait(kit.Limit)
	}
	// The client repeats its first datagram until the server answers.
	server := kit.Start(t, s.OnTap(program, "serve", kit.StackAddr, "5443"))
	check(kit.OK(t, 4*kit.Limit, s.Server.Command(program, "get", kit.StackAddr, "5443", size)))
	server.Signal(15)
	server.Wait(kit.Limit)
}
