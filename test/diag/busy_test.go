// SPDX-License-Identifier: Apache-2.0

package diag

import (
	_ "embed"
	"fmt"
	"os"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// busyRate is the rate of each path of a busy instance. It keeps the instance busy all
// the time, but many tests can run in parallel.
const busyRate = "20mbit"

// busySize is more than any test transfers.
const busySize = 1 << 40

// A busy instance has two paths and one stack. On this stack, it runs until end:
//
//   - a web server and a database, each with clients that send requests continuously
//     and clients that are silent
//   - an endless MPTCP transfer over both paths
//   - sockets of other kinds
//
// The wires are:
//
//	stack                                     server
//	eth0 10.74.1.2 fd74:1::2 ─ tap0 ─ br0 ─ v0 ─── s0 10.74.1.1 fd74:1::1
//	eth1 10.74.2.2 fd74:2::2 ─ tap1 ─ br1 ─ v1 ─── s1 10.74.2.1 fd74:2::1
//
// With the engine preload, there is a single program: the web server, which also sends
// the transfer. Clients on the stack are missing.
type busy struct {
	*kit.PathSite
	engine  string
	port    string // of the transfer: on the server; with preload, on the stack
	target  *kit.Proc
	clients []*kit.Proc
}

//go:embed testdata/busy_visits.py
var busyVisits string

//go:embed testdata/busy_fetches.py
var busyFetches string

// newBusy starts a busy instance and returns when all of its programs are at work.
func newBusy(t *testing.T, engine string) *busy {
	t.Helper()
	kit.Need(t, "nginx", "redis-server", "mptcpize", "curl")
	b := &busy{PathSite: kit.NewPeers(t), engine: engine, port: "80"}
	for n := range 2 {
		b.wireSix(n)
	}
	dir := kit.Dir(t)
	kit.WriteFile(t, dir+"/hello", "hello\n")
	web := kit.Nginx{Root: dir}.Config(t, dir)
	redis := ""
	if engine == "preload" {
		b.sparse(dir + "/file")
		b.target = b.Start(engine, ",signal", web...)
	} else {
		redis = "10.74.1.2"
		b.port = b.ServeTransfers(busySize).Port
		all := fmt.Sprintf(`"$@" &
			redis-server --save "" --dir %s --bind 0.0.0.0 :: --protected-mode no >/dev/null &
			exec /usr/bin/python3 -c '%s' %s`, dir, busyFetches, b.port)
		b.target = b.Start(engine, "", append([]string{"sh", "-c", all, "sh"}, web...)...)
	}
	kit.WaitFor(t, "the sockets", kit.Limit, func() bool { return b.listens(80) && (redis == "" || b.listens(6379)) })
	visits := kit.Start(t, b.Server.Command("/usr/bin/python3", "-c", busyVisits, "10.74.1.2", redis))
	b.clients = append(b.clients, visits)
	if engine == "preload" {
		b.clients = append(b.clients, kit.Start(t, b.Server.Command("mptcpize", "run", "curl", "-s", "-o", "/dev/null", "http://10.74.1.2/file")))
	}
	b.Until("clients that are served", b.target, func() bool { out, _ := visits.Output(); return out != "" || !visits.Running() })
	for path := range 2 {
		before := b.Carried(path)
		b.Until("a transfer by both paths", b.target, func() bool { return b.Carried(path) > before+1<<20 })
	}
	return b
}

// wireSix sets up one of the two wires, limited to busyRate.
func (b *busy) wireSix(n int) {
	b.Helper()
	b.Wire(n, fmt.Sprintf(",ip=10.74.%d.2/24,ip6=fd74:%[1]d::2/64,gw=10.74.%[1]d.1", n+1))
	b.Server.Addr(b, fmt.Sprint("s", n), fmt.Sprintf("fd74:%d::1/64", n+1))
	for dev, in := range map[string]*kit.Netns{"s": b.Server, "v": b.Host} {
		in.Run(b, "tc", "qdisc", "change", "dev", fmt.Sprint(dev, n), "root", "tbf", "rate", busyRate, "burst", "256kb", "latency", "50ms")
	}
}

// sparse creates a file that is larger than any test needs and occupies no blocks.
func (b *busy) sparse(path string) {
	b.Helper()
	kit.WriteFile(b.T, path, "")
	if err := os.Truncate(path, busySize); err != nil {
		b.Fatal(err)
	}
}

func (b *busy) listens(port int) bool {
	return kit.StackListens(b.T, b.Instance, port)
}

// ctl runs a verb of lklctl on the instance, which must succeed.
func (b *busy) ctl(args ...string) string {
	b.Helper()
	return kit.Lklctl(b.T, append([]string{"--name", b.Instance}, args...)...)
}

// end checks that all services still work and ends the instance.
func (b *busy) end() {
	b.Helper()
	for _, c := range b.clients {
		if out, errs := c.Output(); !c.Running() {
			b.Errorf("a client has ended: %s%s", out, errs)
		}
	}
	if out, errs := b.target.Output(); !b.target.Running() {
		b.Errorf("the instance has ended: %s%s", out, errs)
		return
	}
	b.ctl("stop")
	b.target.Wait(kit.Limit)
}
