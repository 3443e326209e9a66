// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestProgThousand opens a thousand connections between static Go programs, all at once
// and all with traffic.
func TestProgThousand(t *testing.T) {
	s := testutil.NewSite(t)
	testPair(s, pair{
		port:   7000,
		server: func(string) []string { return []string{testutil.Probe(), "echo", ":7000"} },
		client: func(c *client) { c.says("1000\n", testutil.Probe(), "crowd", c.addr+":7000", "1000") },
	})
}

// TestProgAsyncio runs python3 asyncio on both sides: streams, datagrams, TLS, and
// hundreds of half-closed connections. All of them begin at once. With a smaller
// backlog, the kernel's SYN cookies end some of them with a reset, on any stack
// (docs/reference/limits.md).
func TestProgAsyncio(t *testing.T) {
	s := testutil.NewSite(t)
	cert := certificate(t)
	testPair(s, pair{
		inside: asServer | asClient,
		port:   7000,
		server: func(string) []string {
			return python(`
import asyncio, hashlib, ssl
async def digest(r, w):
    w.write(hashlib.sha256(await r.read()).hexdigest().encode())
    w.close()
async def line(r, w):
    w.write(await r.readline())
    await w.drain()
    w.close()
class Upper(asyncio.DatagramProtocol):
    def connection_made(self, t): self.t = t
    def datagram_received(self, d, a): self.t.sendto(d.upper(), a)
async def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(%q, %q)
    await asyncio.start_server(line, None, 7001, ssl=tls)
    await asyncio.get_running_loop().create_datagram_endpoint(Upper, ("0.0.0.0", 7002))
    await (await asyncio.start_server(digest, None, 7000, backlog=256)).serve_forever()
asyncio.run(main())`, cert+"/cert.pem", cert+"/key.pem")
		},
		client: func(c *client) {
			c.says("200 sums, 50 lines by TLS, 50 datagrams\n", python(`
import asyncio, hashlib, os, ssl
async def digest(i):
    r, w = await asyncio.open_connection(%[1]q, 7000)
    data = os.urandom(i * 1000)
    w.write(data)
    w.write_eof()
    got = await r.read()
    w.close()
    return got.decode() == hashlib.sha256(data).hexdigest()
async def line(i):
    r, w = await asyncio.open_connection(%[1]q, 7001, ssl=ssl.create_default_context(cafile=%[2]q))
    w.write(b"%%d\n" %% i)
    got = await r.readline()
    w.close()
    return got == b"%%d\n" %% i
class Ask(asyncio.DatagramProtocol):
    def __init__(self): self.got, self.all = [], asyncio.get_running_loop().create_future()
    def datagram_received(self, d, a):
        self.got.append(d)
        if len(self.got) == 50: self.all.set_result(sorted(self.got))
async def main():
    sums = await asyncio.gather(*[digest(i) for i in range(200)])
    lines = await asyncio.gather(*[line(i) for i in range(50)])
    t, p = await asyncio.get_running_loop().create_datagram_endpoint(Ask, remote_addr=(%[1]q, 7002))
    for i in range(50): t.sendto(b"d%%02d" %% i)
    got = await p.all
    print(f"{sum(sums)} sums, {sum(lines)} lines by TLS, {sum(g == b'D%%02d' %% i for i, g in enumerate(got))} datagrams")
asyncio.run(asyncio.wait_for(main(), 25))`, c.addr, cert+"/cert.pem")...)
		},
	})
}

// TestProgNode runs node: an HTTP server with keep-alive and node's fetch, net sockets
// in both directions, dgram.
func TestProgNode(t *testing.T) {
	s := testutil.NewSite(t)
	dir := testutil.Dir(t)
	server := testutil.WriteFile(t, dir+"/server.js", `
const http = require("http"), net = require("net"), dgram = require("dgram"), cluster = require("cluster");
if (cluster.isPrimary) { // two workers share what they listen on
	for (let i = 0; i < 2; i++) cluster.fork();
	process.on("SIGTERM", () => process.exit(0));
} else {
	net.createServer({ allowHalfOpen: true }, s => s.pipe(s)).listen(7001);
	const u = dgram.createSocket("udp4");
	u.on("message", (m, from) => u.send(m.toString().toUpperCase(), from.port, from.address));
	u.bind(7002);
	http.createServer((q, r) => {
		let n = 0;
		q.on("data", d => n += d.length);
		q.on("end", () => r.end(q.method + " " + q.url + " " + n));
	}).listen(7000);
}`)
	asker := testutil.WriteFile(t, dir+"/client.js", `
const net = require("net"), dgram = require("dgram"), addr = process.argv[2];
const get = async i => (await (await fetch("http://" + addr + ":7000/" + i)).text()) === "GET /" + i + " 0";
const echo = () => new Promise((ok, bad) => {
	const data = Buffer.alloc(1 << 20, "x"), s = net.connect(7001, addr);
	let n = 0;
	s.on("data", d => n += d.length);
	s.on("end", () => ok(n === data.length));
	s.on("error", bad);
	s.end(data);
});
const ask = () => new Promise(ok => {
	const u = dgram.createSocket("udp4");
	u.on("message", m => { u.close(); ok(m.toString() === "ASKED"); });
	u.send("asked", 7002, addr);
});
(async () => {
	const count = a => a.filter(x => x).length;
	const gets = await Promise.all([...Array(100).keys()].map(get));
	const post = await (await fetch("http://" + addr + ":7000/p", { method: "POST", body: "y".repeat(3000000) })).text();
	const echoes = await Promise.all([...Array(20)].map(echo));
	console.log(count(gets), post, count(echoes), await ask());
	process.exit(0); // fetch keeps connections
})();`)
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
	s := testutil.NewSite(t)
	testutil.Need(t, "java", "javac")
	dir := testutil.Dir(t)
	for name, source := range javaSources {
		testutil.WriteFile(t, filepath.Join(dir, name+".java"), source)
	}
	testutil.Host.Run(t, "javac", "-d", dir, dir+"/Server.java", dir+"/Client.java")
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

// TestProgRestart checks that a server that is killed and restarted at once gets its
// port again while connections of its predecessor still exist.
func TestProgRestart(t *testing.T) {
	s := testutil.NewSite(t)
	testutil.Need(t, "socat", "nc")
	for _, stack := range []string{"mptcp", "vanilla"} {
		t.Run(stack, func(t *testing.T) {
			dir := testutil.Dir(t)
			r := startOn(s.In(t), stack, "sh", "-c", fmt.Sprintf(`while [ ! -e %[1]s/end ]; do socat TCP-LISTEN:7000,reuseaddr,fork PIPE & echo $! >%[1]s/pid; wait $! 2>/dev/null; done; exit 0`, dir))
			last := ""
			for i := range 5 {
				r.listens(7000)
				testutil.WaitFor(t, "an answer", testutil.Limit, func() bool {
					out, err := shell("echo %d | socat -t5 - TCP:%s:7000", i, testutil.StackAddr).Output()
					return err == nil && string(out) == fmt.Sprintln(i)
				})
				// A connection that stays open, served by a child.
				stays := testutil.Start(t, exec.Command("nc", "-v", "-d", testutil.StackAddr, "7000"))
				testutil.WaitFor(t, "a connection that stays", testutil.Limit, func() bool { _, errs := stays.Output(); return errs != "" })
				testutil.WaitFor(t, "the next server", testutil.Limit, func() bool { return testutil.ReadFile(t, dir+"/pid") != last })
				last = testutil.ReadFile(t, dir+"/pid")
				if i == 4 {
					testutil.WriteFile(t, dir+"/end", "")
				}
				testutil.Host.Run(t, "kill", "-9", strings.TrimSpace(last))
			}
			if res := r.proc.Wait(testutil.Limit); res.Status != 0 {
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
