// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// echoBlocks sends blocks to an echo server of MPTCP, each after a line of standard input, and
// compares what comes back.
const echoBlocks = `
import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], 7), 20)
s.settimeout(60)
print("connected", flush=True)
for line in sys.stdin:
    data, got = os.urandom(4 << 20), b""
    sender = threading.Thread(target=s.sendall, args=(data,))
    sender.start()
    while len(got) < len(data):
        block = s.recv(1 << 18)
        if not block: break
        got += block
    sender.join()
    print("same" if got == data else "different", flush=True)
`

// TestCLATSecondPath has two paths for one connection of an IPv4-only program: one through the
// NAT64 of a network with IPv6 only, and an IPv4 network. Each of them fails once.
func TestCLATSecondPath(t *testing.T) {
	for _, engine := range []string{"supervise", "trace", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := newOnly6(t, false)
			s.advertise(pref64(nat64Prefix, time.Hour))
			kit.Veth(t, kit.Host, "v1", s.router, "r1")
			s.router.Addr(t, "r1", "10.77.0.1/24")
			before := kit.Take(t, s.router)
			name := kit.NewName()
			cmd := kit.Lklrun("--name", name, "--engine", engine, "--stack", "mptcp", "--if", s.uplink(), "--if", "clat",
				"--if", "macvtap:v1,ip=10.77.0.2/24,gw=10.77.0.1", "--", "/usr/bin/python3", "-c", echoBlocks, server4)
			in, err := cmd.StdinPipe()
			kit.Must(t, err)
			p := kit.Start(t, cmd)
			says := func(n int) {
				t.Helper()
				want := "connected\n" + strings.Repeat("same\n", n)
				kit.WaitFor(t, fmt.Sprintf("answer %d", n), 3*kit.Limit, func() bool {
					out, errs := p.Output()
					if !p.Running() || !strings.HasPrefix(want, out) {
						t.Fatalf("%s%s", out, errs)
					}
					return out == want
				})
			}
			paths := func(want ...string) {
				t.Helper()
				kit.WaitFor(t, fmt.Sprint("subflows on ", want), kit.Limit, func() bool {
					r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "mptcp"))
					if strings.Contains(r.Stdout, "addr add") {
						t.Fatalf("the network of eth0 has only IPv6: %v", r)
					}
					var on []string
					for _, line := range kit.Lines(r.Stdout) {
						if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[0], "eth") && f[3] == "ESTAB" {
							on = append(on, f[0])
						}
					}
					return slices.Equal(on, want)
				})
			}
			ask := func() {
				t.Helper()
				_, err := fmt.Fprintln(in)
				kit.Must(t, err)
			}
			says(0)
			ask() // joins start after data has flowed in both directions
			says(1)
			paths("eth1", "eth2")
			kit.Host.Run(t, "ip", "link", "set", "v1", "down")
			ask()
			says(2) // through the NAT64 alone
			kit.Host.Run(t, "ip", "link", "set", "v1", "up")
			paths("eth1", "eth2")
			kit.Host.Run(t, "ip", "link", "set", "v0", "down")
			ask()
			says(3) // through the IPv4 network alone
			kit.Must(t, in.Close())
			if r := p.Wait(kit.Limit); r.Status != 0 {
				t.Error(r)
			}
			kit.Host.Run(t, "ip", "link", "set", "v0", "up")
			before.Same()
		})
	}
}
