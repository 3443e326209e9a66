// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/floods_udp.py
var floodsUDP string

//go:embed testdata/floods_tcp.py
var floodsTCP string

// TestFinding10GatewayLimits checks a program that uses up the gateway's pairs of UDP
// ports, or its pending connections. The gateway must still serve other programs, and
// report the limit in one line and a counter.
func TestFinding10GatewayLimits(t *testing.T) {
	t.Parallel()
	kit.Need(t, "ip", "nginx", "prlimit", "/usr/bin/python3")
	const server, silent = "10.71.9.1", "10.71.9.2"
	for _, tc := range []struct{ name, script, counter, warning, done string }{
		{"udp", floodsUDP, "eth0.gateway.udp_evicted", "UDP port pairs at once", "alive\n"},
		{"tcp", floodsTCP, "eth0.gateway.connecting_evicted", "connections wait for an answer", "connected "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			host := kit.NewNetns(t, "host")
			host.Run(t, "ip", "link", "set", "lo", "up")
			kit.Veth(t, host, "v0", kit.NewNetns(t, "silent"), "s0")
			host.Addr(t, "v0", server+"/24")
			// No device has this Ethernet address, so packets to it are dropped.
			host.Run(t, "ip", "neigh", "add", silent, "lladdr", "02:00:00:00:00:02", "dev", "v0")
			dir := kit.Dir(t)
			kit.WriteFile(t, dir+"/hello", "hello\n")
			host.Nginx(t, kit.Nginx{Root: dir})
			host.EchoUDP(t, server+":9")
			name := kit.NewName()
			cmd := host.Command("prlimit", "--nofile=20000:20000", kit.Bin("lklrun"), "--name", name, "--if", "user", "--",
				"/usr/bin/python3", "-c", tc.script, server, silent)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			p := kit.Start(t, cmd)
			kit.WaitFor(t, "the program", 2*kit.Limit, func() bool {
				out, _ := p.Output()
				return strings.Contains(out, tc.done) || !p.Running()
			})
			out, _ := p.Output()
			if tc.name == "tcp" {
				took, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(out, tc.done)), 64)
				if err != nil || took > 1 {
					t.Errorf("a connection took %v s: %v\n%s", took, err, out)
				}
			}
			if n := gatewayCount(t, name, tc.counter); n == 0 {
				t.Errorf("%s is 0", tc.counter)
			}
			stdin.Close()
			r := p.Wait(kit.Limit)
			if r.Status != 0 || !strings.Contains(r.Stdout, tc.done) || strings.Count(r.Stderr, tc.warning) != 1 {
				t.Error(r)
			}
		})
	}
}

// gatewayCount returns one of the gateway counters of a run.
func gatewayCount(t *testing.T, name, counter string) int {
	t.Helper()
	var all map[string]int
	out := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "counters", "-o", "json", counter)).Stdout
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Errorf("lklctl counters: %v\n%s", err, out)
	}
	return all[counter]
}
