// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestProgMosquitto checks a retained message, and a subscriber that receives published
// messages.
func TestProgMosquitto(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs:  []string{"mosquitto", "mosquitto_sub", "mosquitto_pub"},
		inside: asServer,
		port:   1883,
		server: func(dir string) []string {
			return []string{"mosquitto", "-c", kit.WriteFile(t, dir+"/conf", "listener 1883\nallow_anonymous true\nuser root\n")}
		},
		client: func(c *client) {
			got := c.sh(`mosquitto_pub -h %s -t kept -m retained -r -q 1 && mosquitto_sub -h %[1]s -t kept -C 1`, c.addr)
			if got != "retained\n" {
				c.Errorf("the retained message: %q", got)
			}
			got = c.sh(`mosquitto_sub -h %s -t 'live/#' -q 1 -C 200 & p=$!
				while kill -0 $p 2>/dev/null; do seq 100 | mosquitto_pub -h %[1]s -t live/x -q 1 -l; done; wait $p`, c.addr)
			if n := strings.Count(got, "\n"); n != 200 {
				c.Errorf("the subscriber heard %d messages of 200", n)
			}
		},
	})
}

//go:embed testdata/reverse_datagrams.py
var reverseDatagrams string

//go:embed testdata/send_datagrams.py
var sendDatagrams string

// TestProgDatagrams sends datagrams larger than the MTU, also over IPv6 and its
// link-local addresses. The server is on the stack or on the host.
func TestProgDatagrams(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		inside: asServer | asClient,
		port:   7000,
		udp:    true,
		server: func(string) []string {
			return python(reverseDatagrams)
		},
		client: func(c *client) {
			six := map[string]string{kit.StackAddr: kit.StackAddr6, kit.ServerAddr: kit.ServerAddr6, "127.0.0.1": "::1"}[c.addr]
			c.says("ok\n", python(sendDatagrams, c.addr, six)...)
		},
	})
}

//go:embed testdata/tell_peer.py
var tellPeer string

// TestProgLinkLocal checks TCP over IPv6 link-local addresses, which are valid only
// together with an interface.
func TestProgLinkLocal(t *testing.T) {
	s := kit.NewSite(t)
	linkLocal := func(text string) string {
		for _, line := range kit.Lines(text) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "inet6" && strings.HasPrefix(f[1], "fe80:") {
				addr, _, _ := strings.Cut(f[1], "/")
				return addr
			}
		}
		t.Fatalf("no link-local address in %s", text)
		return ""
	}
	var hostLL string
	kit.WaitFor(t, "the bridge's link-local address", kit.Limit, func() bool {
		text := kit.Host.Run(t, "ip", "-6", "addr", "show", "dev", "br0", "scope", "link", "-tentative")
		if strings.Contains(text, "fe80") {
			hostLL = linkLocal(text)
		}
		return hostLL != ""
	})
	const ask = `import socket, sys; print(socket.create_connection((sys.argv[1], 7000), 20).recv(100).decode())`
	host := kit.Start(t, kit.Host.Command(python(tellPeer)...))
	kit.WaitFor(t, "the host's server", kit.Limit, func() bool { return kit.Host.Listening(t, "t", 7000) })
	for _, stack := range []string{"mptcp", "vanilla"} {
		r := startOn(s, stack, python(tellPeer)...)
		r.listens(7000)
		inside := func(args ...string) string {
			return kit.Lklctl(t, append([]string{"exec", "-n", r.name, "--"}, args...)...)
		}
		stackLL := linkLocal(inside("ip", "-6", "addr", "show", "dev", "eth0", "scope", "link"))
		got := kit.OK(t, kit.Limit, kit.Host.Command(append(python(ask), stackLL+"%br0")...))
		if want := hostLL + " eth0\n"; got != want {
			t.Errorf("%s: the stack's server: %q, want %q", stack, got, want)
		}
		got = inside(append(python(ask), hostLL+"%eth0")...)
		if want := stackLL + " br0\n"; got != want {
			t.Errorf("%s: the stack's client: %q, want %q", stack, got, want)
		}
		r.proc.Signal(15)
		r.proc.Wait(kit.Limit)
	}
	host.Signal(15)
	host.Wait(kit.Limit)
}
