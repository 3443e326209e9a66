// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestProgThousand opens a thousand connections between static Go programs, all at once
// and all with traffic.
func TestProgThousand(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		port:   7000,
		server: func(string) []string { return []string{kit.Probe(), "echo", ":7000"} },
		client: func(c *client) { c.says("1000\n", kit.Probe(), "crowd", c.addr+":7000", "1000") },
	})
}

//go:embed testdata/asyncio_server.py
var asyncioServer string

//go:embed testdata/asyncio_client.py
var asyncioClient string

// TestProgAsyncio runs python3 asyncio on both sides: streams, datagrams, TLS, and
// hundreds of half-closed connections. All connections begin at once. With a smaller
// backlog, the kernel's SYN cookies would reset some of them, on any stack
// (docs/reference/limits.md).
func TestProgAsyncio(t *testing.T) {
	s := kit.NewSite(t)
	cert := certificate(t)
	testPair(s, pair{
		inside: asServer | asClient,
		port:   7000,
		server: func(string) []string {
			return python(asyncioServer, cert+"/cert.pem", cert+"/key.pem")
		},
		client: func(c *client) {
			c.says("200 sums, 50 lines by TLS, 50 datagrams\n", python(asyncioClient, c.addr, cert+"/cert.pem")...)
		},
	})
}

//go:embed testdata/node_server.js
var nodeServer string

//go:embed testdata/node_client.js
var nodeClient string

// TestProgNode runs node: an HTTP server with keep-alive and node's fetch, net sockets
// in both directions, dgram.
func TestProgNode(t *testing.T) {
	s := kit.NewSite(t)
	dir := kit.Dir(t)
	server := kit.WriteFile(t, dir+"/server.js", nodeServer)
	asker := kit.WriteFile(t, dir+"/client.js", nodeClient)
	testPair(s, pair{
		needs:  []string{"node"},
		heavy:  true,
		inside: asClient,
		port:   7000,
		server: func(string) []string { return []string{"node", server} },
		client: func(c *client) { c.says("100 POST /p 3000000 20 true\n", "node", asker, c.addr) },
	})
}

// TestProgJava runs Java: classic sockets, a selector, the JDK's HTTP server and
// HttpClient.
func TestProgJava(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "java", "javac")
	dir := kit.Dir(t)
	kit.Host.Run(t, "javac", "-d", dir, kit.TestData("Server.java"), kit.TestData("Client.java"))
	java := []string{"java", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-cp", dir}
	testPair(s, pair{
		heavy:  true,
		inside: asServer | asClient,
		port:   7000,
		server: func(string) []string { return append(java, "Server") },
		client: func(c *client) {
			c.says("classic 20 selector 50 http 30 datagram true\n", append(java, "Client", c.addr)...)
		},
	})
}

// TestProgRestart kills a server and restarts it at once. The server must get its port
// again while connections of its predecessor still exist.
func TestProgRestart(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "socat", "nc")
	for _, stack := range []string{"mptcp", "vanilla"} {
		t.Run(stack, func(t *testing.T) {
			dir := kit.Dir(t)
			r := startOn(s.In(t), stack, "sh", "-c", fmt.Sprintf(`while [ ! -e %[1]s/end ]; do socat TCP-LISTEN:7000,reuseaddr,fork PIPE & echo $! >%[1]s/pid; wait $! 2>/dev/null; done; exit 0`, dir))
			last := ""
			for i := range 5 {
				r.listens(7000)
				kit.WaitFor(t, "an answer", kit.Limit, func() bool {
					out, err := shell("echo %d | socat -t5 - TCP:%s:7000", i, kit.StackAddr).Output()
					return err == nil && string(out) == fmt.Sprintln(i)
				})
				// This connection stays open, served by a child.
				stays := kit.Start(t, exec.Command("nc", "-v", "-d", kit.StackAddr, "7000"))
				kit.WaitFor(t, "a connection that stays", kit.Limit, func() bool { _, errs := stays.Output(); return errs != "" })
				kit.WaitFor(t, "the next server", kit.Limit, func() bool { return kit.ReadFile(t, dir+"/pid") != last })
				last = kit.ReadFile(t, dir+"/pid")
				if i == 4 {
					kit.WriteFile(t, dir+"/end", "")
				}
				kit.Host.Run(t, "kill", "-9", strings.TrimSpace(last))
			}
			if res := r.proc.Wait(kit.Limit); res.Status != 0 {
				t.Error(res)
			}
			if out, errs := r.proc.Output(); strings.Contains(out+errs, "socat") {
				t.Errorf("a server said: %s%s", out, errs)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		})
	}
}
