// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// serveEcho sends back what it receives, on a port of the server, with or without
// MPTCP. If once is set, it stops listening before it sends.
func serveEcho(p *kit.PathSite, mptcp, once bool) (port string) {
	p.Helper()
	var l net.Listener
	p.Server.Do(p, func() (err error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(mptcp)
		l, err = lc.Listen(context.Background(), "tcp4", ":0")
		return err
	})
	p.Cleanup(func() { _ = l.Close() }) // an error does not matter at the end
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			if once {
				_ = l.Close() // its only error is that it is closed
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // until the client disconnects
			}()
		}
	}()
	return l.Addr().String()[strings.LastIndex(l.Addr().String(), ":")+1:]
}

// talkOnPaths starts a talker on both paths; flags are added to lklrun's.
func talkOnPaths(p *kit.PathSite, flags ...string) *kit.Talker {
	p.Helper()
	args := append([]string{kit.Bin("lklrun"), "--name", p.Instance, "--if", p.Ifs[0], "--if", p.Ifs[1]}, flags...)
	return kit.StartTalker(p.T, p.Instance, p.Host.Command(append(args, "--", "/usr/bin/python3", "-uc", kit.TalkerProgram)...))
}

// exchange opens a connection to the server's first address, or sends a byte in both
// directions on the open one. After that, subflows may join.
func exchange(p *kit.PathSite, k *kit.Talker, port string) {
	p.Helper()
	k.Say("1")
	if got := k.Say(`keep.get("c") or keep.__setitem__("c", socket.create_connection((%q, %s), 20))`, p.Addr, port); got != "None" && !strings.Contains(got, "socket") {
		p.Fatalf("connecting: %s", got)
	}
	if got := k.Say(`keep["c"].sendall(b"x") or keep["c"].recv(1)`); got != "b'x'" {
		p.Fatalf("the echo: %s", got)
	}
}

// mptcpShown is the output of lklctl mptcp for the only connection.
type mptcpShown struct {
	Fallback bool
	Subflows []struct {
		Iface, State, Local string
	}
	WhyNot []struct {
		Code, Iface, Address, Text, Remedy string
	} `json:"why_not"`
}

func shownMPTCP(p *kit.PathSite) (c mptcpShown) {
	p.Helper()
	var all []mptcpShown
	text := kit.Lklctl(p.T, "-n", p.Instance, "-o", "json", "mptcp")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 {
		p.Fatalf("want one connection: %v\n%s", err, text)
	}
	return all[0]
}

// over returns the interfaces of established subflows.
func (c mptcpShown) over() (ifs []string) {
	for _, s := range c.Subflows {
		if s.State == "ESTAB" {
			ifs = append(ifs, s.Iface)
		}
	}
	slices.Sort(ifs)
	return ifs
}

// A whyStage is a network, or a setting, in which a subflow is missing.
type whyStage struct {
	name    string
	before  func(p *kit.PathSite)                // before the run
	flags   []string                             // of lklrun
	plain   bool                                 // the server has no MPTCP
	once    bool                                 // the server accepts one connection
	started func(p *kit.PathSite, k *kit.Talker) // before the connection
	after   func(p *kit.PathSite, k *kit.Talker) // once the connection has both subflows
	code    string                               // the reason; "" if no reason is expected
	iface   string
	text    []string // parts of the message
	remedy  string   // part of the remedy
}

var whyStages = []whyStage{
	{name: "healthy"},
	{
		name: "no route",
		before: func(p *kit.PathSite) {
			p.Ifs[1] = strings.TrimSuffix(p.Ifs[1], ",gw=10.74.2.1")
			// Unlike a router, Linux answers ARP requests for all its addresses on all
			// wires.
			p.Server.Run(p, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1")
		},
		code: "no-route", iface: "eth1", text: []string{"from 10.74.2.2 to 10.74.1.1"}, remedy: "via GATEWAY dev eth1",
	},
	{
		name: "limit 0",
		started: func(p *kit.PathSite, _ *kit.Talker) {
			kit.Lklctl(p.T, "-n", p.Instance, "mptcp", "limits", "set", "subflows", "0")
		},
		code: "limit-subflows", iface: "eth1", text: []string{"is 0"}, remedy: "lklctl mptcp limits set subflows 1",
	},
	{
		name: "peer without MPTCP", plain: true,
		code: "peer-without-mptcp-or-option-stripped", text: []string{"10.74.1.1 answered without MP_CAPABLE", "does not support MPTCP", "strips"}, remedy: "net.mptcp.enabled=1",
	},
	{
		name: "gateways", before: func(p *kit.PathSite) { gateways(p, 0, 1) },
		code: "gateway", text: []string{"lklrun's gateway on eth0"}, remedy: "--if tap:NAME,nat or --if raw:DEV",
	},
	{
		name: "gateway first", before: func(p *kit.PathSite) { gateways(p, 0) },
		code: "gateway", text: []string{"lklrun's gateway"}, remedy: "make it the last --if",
	},
	{
		name: "gateway last", before: func(p *kit.PathSite) { gateways(p, 1) },
		code: "gateway", iface: "eth1", text: []string{"lklrun's gateway"}, remedy: "--if tap:NAME,nat or --if raw:DEV",
	},
	{
		name:   "options stripped",
		before: func(p *kit.PathSite) { strips(p, 0, "") },
		code:   "peer-without-mptcp-or-option-stripped", text: []string{"10.74.1.1 answered without MP_CAPABLE", "does not support MPTCP", "strips"},
	},
	{
		name:   "options of data stripped",
		before: func(p *kit.PathSite) { strips(p, 0, "tcp flags & syn == 0") },
		code:   "data-option-stripped", text: []string{"negotiated MPTCP", "strips"},
	},
	{
		name:   "options stripped on the second path",
		before: func(p *kit.PathSite) { strips(p, 1, "") },
		code:   "join-option-stripped", iface: "eth1", text: []string{"without MP_JOIN", "strips"}, remedy: "lklrun retries",
	},
	{
		name:   "join filtered",
		before: func(p *kit.PathSite) { filters(p, 1, "drop") },
		code:   "join-unanswered", iface: "eth1", text: []string{"no answer", "10.74.1.1:"}, remedy: "ping",
	},
	{
		name:   "join rejected",
		before: func(p *kit.PathSite) { filters(p, 1, "reject with tcp reset") },
		code:   "join-refused", iface: "eth1", text: []string{"refused", "RST"}, remedy: "lklrun retries",
	},
	{
		name: "listener closed", once: true,
		code: "join-refused", iface: "eth1", text: []string{"closed its listening socket"}, remedy: "ss -ltn 'sport = :",
	},
	{
		name:   "peer's limit",
		before: func(p *kit.PathSite) { p.Server.Run(p, "ip", "mptcp", "limits", "set", "subflows", "0") },
		code:   "peer-refuses-subflows", iface: "eth1", text: []string{"limit"}, remedy: "ip mptcp limits set",
	},
	{
		name: "endpoint deleted",
		after: func(p *kit.PathSite, _ *kit.Talker) {
			kit.Lklctl(p.T, "-n", p.Instance, "mptcp", "endpoint", "del", "10.74.2.2")
		},
		code: "endpoint-deleted", iface: "eth1", text: []string{"deleted"}, remedy: "endpoint add 10.74.2.2 dev eth1 subflow",
	},
	{
		name: "never an endpoint",
		started: func(p *kit.PathSite, _ *kit.Talker) {
			kit.Lklctl(p.T, "-n", p.Instance, "mptcp", "endpoint", "del", "10.74.2.2")
		},
		code: "no-endpoint", iface: "eth1", remedy: "endpoint add 10.74.2.2 dev eth1 subflow",
	},
	{
		name:   "announced only",
		before: func(p *kit.PathSite) { p.Ifs[1] += ",signal" },
		code:   "endpoint-signal-only", iface: "eth1",
	},
	{
		name:  "no carrier",
		after: func(p *kit.PathSite, _ *kit.Talker) { p.Host.Run(p, "ip", "link", "set", p.Devs[1], "down") },
		code:  "no-carrier", iface: "eth1",
	},
	{
		name: "down",
		started: func(p *kit.PathSite, _ *kit.Talker) {
			kit.Lklctl(p.T, "-n", p.Instance, "link", "set", "eth1", "down")
		},
		code: "interface-down", iface: "eth1", remedy: "lklctl link set eth1 up",
	},
}

// withPreload returns the named stages with the kernel inside the program.
func withPreload(names ...string) (all []whyStage) {
	for _, s := range whyStages {
		if slices.Contains(names, s.name) {
			s.name += ", preload"
			s.flags = append(slices.Clone(s.flags), "--engine", "preload")
			all = append(all, s)
		}
	}
	return all
}

// gateways replaces interfaces by the user-mode gateway. The host can reach the server.
func gateways(p *kit.PathSite, which ...int) {
	p.Helper()
	for _, n := range which {
		p.Ifs[n] = "user"
	}
	p.Host.Addr(p, "br0", "10.74.1.9/24")
}

// strips sets up a middlebox on a path, which removes MPTCP's options from packets.
func strips(p *kit.PathSite, path int, match string) {
	p.Helper()
	addTable(p, path, "prerouting", "-150", match+" reset tcp option mptcp")
}

// filters sets up a firewall at the server for SYNs with MP_JOIN on a path.
func filters(p *kit.PathSite, path int, verdict string) {
	p.Helper()
	addTable(p, path, "input", "0", "tcp flags & (syn | ack) == syn "+verdict)
}

// addTable creates a rule for packets to the server on a path.
func addTable(p *kit.PathSite, path int, hook, priority, rule string) {
	p.Helper()
	p.Server.Run(p, "nft", fmt.Sprintf("table ip stage { chain c { type filter hook %s priority %s; iifname s%d meta l4proto tcp %s; }; }", hook, priority, path, rule))
}

// TestWhyNot checks that each staged failure is reported with its reason and no other.
// A healthy connection has no reason.
func TestWhyNot(t *testing.T) {
	kit.Need(t, "nft")
	for _, s := range append(withPreload("healthy", "join rejected", "endpoint deleted"), whyStages...) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := kit.NewPathSite(t)
			if s.before != nil {
				s.before(p)
			}
			port := serveEcho(p, !s.plain, s.once)
			k := talkOnPaths(p, s.flags...)
			k.Say("1") // wait until the target runs
			if s.started != nil {
				s.started(p, k)
			}
			exchange(p, k, port)
			if s.code == "" || s.after != nil {
				kit.WaitFor(t, "both paths carry", kit.Limit, func() bool { return strings.Join(shownMPTCP(p).over(), " ") == "eth0 eth1" })
			}
			if s.after != nil {
				s.after(p, k)
			}
			explains(p, s)
			k.End()
		})
	}
}

// explains waits for the reason of a stage.
func explains(p *kit.PathSite, s whyStage) {
	p.Helper()
	var c mptcpShown
	ok := kit.Within(kit.Limit, func() bool {
		c = shownMPTCP(p)
		return len(c.WhyNot) == 1 && c.WhyNot[0].Code == s.code || s.code == "" && len(c.WhyNot) == 0
	})
	text := kit.Lklctl(p.T, "-n", p.Instance, "mptcp", "-v")
	p.Logf("%s\n%s", s.name, text)
	if got := kit.Lklctl(p.T, "-n", p.Instance, "drops"); strings.Contains(got, "getroute") {
		p.Errorf("the queries of lklctl leave drops: %s", got)
	}
	if !ok {
		p.Fatalf("want the one reason %q:\n%+v", s.code, c.WhyNot)
	}
	if s.code == "" {
		if strings.Contains(text, "no subflow") || strings.Contains(text, "plain") {
			p.Error("the table has a reason all the same")
		}
		return
	}
	r := c.WhyNot[0]
	if r.Iface != s.iface || !strings.Contains(r.Remedy, s.remedy) {
		p.Errorf("interface %q, remedy %q; want %q, %q", r.Iface, r.Remedy, s.iface, s.remedy)
	}
	for _, part := range s.text {
		if !strings.Contains(r.Text, part) {
			p.Errorf("%q is not in %q", part, r.Text)
		}
	}
}

// TestWhyNotServer checks the server's side. Only the peer can join, so the peer must
// know the address and decide to use it.
func TestWhyNotServer(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite(t)
	p.Server.Run(t, "ip", "mptcp", "limits", "set", "add_addr_accepted", "0")
	k := talkOnPaths(p)
	k.Say(`keep.__setitem__("l", socket.create_server(("", 7000)))`)
	var c net.Conn
	p.Server.Do(t, func() (err error) {
		var d net.Dialer
		d.SetMultipathTCP(true)
		ctx, cancel := context.WithTimeout(context.Background(), kit.Limit)
		defer cancel()
		c, err = d.DialContext(ctx, "tcp4", "10.74.1.2:7000")
		return err
	})
	t.Cleanup(func() { _ = c.Close() }) // an error does not matter at the end
	k.Say(`keep.__setitem__("c", keep["l"].accept()[0])`)
	echo := func() {
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if got := k.Say(`keep["c"].sendall(keep["c"].recv(1))`); got != "None" {
			t.Fatalf("the echo: %s", got)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	echo()
	explains(p, whyStage{name: "not announced", code: "not-announced", iface: "eth1", text: []string{"no endpoint announces this address"}, remedy: "signal"})
	kit.Lklctl(t, "-n", p.Instance, "mptcp", "endpoint", "del", "10.74.2.2")
	kit.Lklctl(t, "-n", p.Instance, "mptcp", "endpoint", "add", "10.74.2.2", "dev", "eth1", "signal")
	echo()
	explains(p, whyStage{name: "announced", code: "announced-not-used", iface: "eth1", text: []string{"which created no subflow"}, remedy: "add_addr_accepted"})
	k.End()
}
