// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"strconv"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/datagram_runs.py
var datagramRuns string

// TestDatagramRuns checks that bursts of datagrams of mixed sizes, which the stack and
// the engine move together, arrive in order and unchanged, also if the program uses
// UDP_SEGMENT and UDP_GRO. The peer on the host's kernel checks them as well.
func TestDatagramRuns(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	s := kit.NewSite(t)
	for i, engine := range []string{"supervise", "trace", "preload"} {
		for j, address := range []string{kit.ServerAddr, kit.ServerAddr6} {
			t.Run(engine+" "+address, func(t *testing.T) {
				port := strconv.Itoa(7000 + 2*i + j)
				server := kit.Start(t, s.Server.Command("/usr/bin/python3", "-c", datagramRuns, "serve", address, port))
				kit.WaitFor(t, "the server", kit.Limit, func() bool { out, _ := server.Output(); return out == "ready\n" })
				r := kit.Run(t, 4*kit.Limit, kit.Lklrun("--name", kit.NewName(), "-q", "--engine", engine, "--if", s.TapIf(), "--",
					"/usr/bin/python3", "-c", datagramRuns, "check", address, port))
				if r.Status != 0 || r.Stdout != "all are right\n" {
					t.Errorf("the program: %v", r)
				}
				server.Signal(15)
				if r := server.Wait(kit.Limit); r.Stderr != "" {
					t.Errorf("the server: %v", r)
				}
			})
		}
	}
}
