// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// floodsUDP creates 20,000 pairs of UDP ports with one socket, and keeps using the
// first pair. Then it sends requests to the servers of UDP and TCP.
const floodsUDP = `
import socket, sys
host = sys.argv[1]
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
used = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
used.settimeout(20)
used.connect((host, 9))
def alive(s, text):
    s.send(text)
    assert s.recv(100) == text, "another answer"
alive(used, b"first")
name = used.getsockname()
for i in range(20000):
    flood.sendto(b"x", (host, 20001 + i))
    if i % 500 == 0:
        alive(used, b"%d" % i)
print("flooded", flush=True)
new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
new.settimeout(20)
new.connect((host, 9))
alive(new, b"new")
c = socket.create_connection((host, 80), 20)
c.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
assert b"200 OK" in c.recv(1000), "the web server"
print("alive", flush=True)
sys.stdin.read()
`

// floodsTCP begins 1,100 connections to a host that never answers, then one to a
// server, and prints how long the last one took.
const floodsTCP = `
import socket, sys, time
silent = []
for i in range(1100):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex((sys.argv[2], 80))
    silent.append(s)
time.sleep(0.5)
begin = time.monotonic()
c = socket.create_connection((sys.argv[1], 80), 20)
print("connected %.3f" % (time.monotonic() - begin), flush=True)
sys.stdin.read()
`

// TestFinding10GatewayLimits checks a program that uses up all pairs of UDP ports, or
// all pending connections. Others must still be served. One line and a counter report
// it.
func TestFinding10GatewayLimits(t *testing.T) {
	t.Parallel()
	testutil.Need(t, "ip", "nginx", "prlimit", "/usr/bin/python3")
	const server, silent = "10.71.9.1", "10.71.9.2"
	for _, tc := range []struct{ name, script, counter, warning, done string }{
		{"udp", floodsUDP, "eth0.gateway.udp_evicted", "pairs of UDP ports at once", "alive\n"},
		{"tcp", floodsTCP, "eth0.gateway.connecting_evicted", "connections wait for an answer", "connected "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			host := testutil.NewNetns(t, "host")
			host.Run(t, "ip", "link", "set", "lo", "up")
			testutil.Veth(t, host, "v0", testutil.NewNetns(t, "silent"), "s0")
			host.Addr(t, "v0", server+"/24")
			// This Ethernet address does not exist, so packets to it are dropped.
			host.Run(t, "ip", "neigh", "add", silent, "lladdr", "02:00:00:00:00:02", "dev", "v0")
			dir := testutil.Dir(t)
			testutil.WriteFile(t, dir+"/hello", "hello\n")
			host.Nginx(t, testutil.Nginx{Root: dir})
			host.EchoUDP(t, server+":9")
			name := testutil.NewName()
			cmd := host.Command("prlimit", "--nofile=20000:20000", testutil.Bin("lklrun"), "--name", name, "--if", "user", "--",
				"/usr/bin/python3", "-c", tc.script, server, silent)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			p := testutil.Start(t, cmd)
			testutil.WaitFor(t, "the program", 2*testutil.Limit, func() bool {
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
			r := p.Wait(testutil.Limit)
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
	out := testutil.Run(t, testutil.Limit, exec.Command(testutil.Bin("lklctl"), "-n", name, "counters", "-o", "json", counter)).Stdout
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Errorf("lklctl counters: %v\n%s", err, out)
	}
	return all[counter]
}
