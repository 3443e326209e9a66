// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// A crossing is a wire whose host has a second network. The host routes between the two
// networks:
//
//	far 10.90.0.1 ─── v0 :here: o0 10.92.0.2 ─── o1 10.92.0.1 :other
//	                       new0 10.91.0.10, the stack
type crossing struct {
	*wire
	other *kit.Netns
}

const otherAddr, otherAddr6 = "10.92.0.1", "fd92::1"

func newCrossing(t *testing.T) *crossing {
	c := &crossing{newWire(t), kit.NewNetns(t, "other")}
	layNAT(c.wire)
	kit.Veth(t, c.here, "o0", c.other, "o1")
	c.here.Addr(t, "o0", "10.92.0.2/24", "fd92::2/64")
	c.other.Addr(t, "o1", otherAddr+"/24", otherAddr6+"/64")
	for _, n := range []struct {
		*kit.Netns
		via, via6 string
	}{{c.far, hereAddr, hereAddr6}, {c.other, "10.92.0.2", "fd92::2"}} {
		n.Run(t, "ip", "route", "add", "10.0.0.0/8", "via", n.via)
		n.Run(t, "ip", "-6", "route", "add", "fd00::/8", "via", n.via6)
	}
	for _, a := range []string{otherAddr, otherAddr6} {
		l := c.other.Listen(t, net.JoinHostPort(a, "7"))
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return // the test has ended
				}
				conn.Close()
			}
		}()
	}
	return c
}

// reaches reports whether a client in a namespace gets a connection. It waits one second
// for an answer, which normally arrives within a millisecond on these wires.
func (c *crossing) reaches(from *kit.Netns, addr, port string) bool {
	err := from.Enter(func() error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(addr, port), time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return err == nil
}

func (c *crossing) want(want bool, what string, from *kit.Netns, addr, port string) {
	c.Helper()
	// On a busy machine, one attempt may take longer.
	if got := c.reaches(from, addr, port) || want && kit.Within(kit.Limit, func() bool { return c.reaches(from, addr, port) }); got != want {
		c.Errorf("%s (%s port %s): reached %v, want %v", what, addr, port, got, want)
	}
}

// TestFinding09WayOut checks that a tap with nat lets the stack's connections out, but
// lets nobody reach the stack, or another network, through the host. For other packets,
// the host forwards exactly as without the run.
func TestFinding09WayOut(t *testing.T) {
	for name, forwards := range map[string]string{"a host": "", "a router": "all", "a device forwarded": "v0"} {
		t.Run(name, func(t *testing.T) {
			c := newCrossing(t)
			switch forwards {
			case "all":
				c.here.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
			case "v0": // the return path enters by o0
				c.here.Run(t, "sysctl", "-qw", "net.ipv4.conf.v0.forwarding=1", "net.ipv4.conf.o0.forwarding=1")
			}
			was := c.state()
			d := c.start("supervise", c.flag)
			second := c.start("supervise", "tap:new1,nat,ip=10.93.0.10/24,ip6=fd93::10/64")
			for _, k := range []*driven{d, second} {
				for _, six := range []string{"False", "True"} {
					if got := k.Say("keep.setdefault('servers', []).append(socket.create_server(('', 8080), family=socket.AF_INET6 if %s else socket.AF_INET, backlog=64))", six); got != "None" {
						t.Fatal(got)
					}
				}
			}
			for _, addr := range []string{"10.91.0.10", "fd91::10"} {
				c.want(true, "the host itself to the stack", c.here, addr, "8080")
				c.want(false, "a neighbour to the stack", c.far, addr, "8080")
				c.want(false, "another network to the stack", c.other, addr, "8080")
				if got := second.Say("socket.create_connection((%q, 8080), 1)", addr); !strings.HasPrefix(got, "TimeoutError") {
					t.Errorf("another run's stack to %s: %s", addr, got)
				}
			}
			for _, addr := range []string{hereAddr, hereAddr6} {
				c.want(true, "what the administrator redirects", c.far, addr, "8080")
			}
			c.want(forwards != "", "a neighbour to another network", c.far, otherAddr, "7")
			c.want(forwards == "all", "a neighbour to another network", c.far, otherAddr6, "7")
			for _, addr := range []string{otherAddr, otherAddr6} {
				d.is("b''", "socket.create_connection((%q, 7), LIMIT).recv(1)", addr)
			}
			d.ping()
			d.tcpOut()
			ends(d)
			second.ping()
			c.want(forwards != "", "after one of two runs, a neighbour to another network", c.far, otherAddr, "7")
			second.ends()
			c.same(was)
		})
	}
}
