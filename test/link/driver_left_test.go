// SPDX-License-Identifier: Apache-2.0

package link

import (
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// TestDriverKilled kills lklrun, or lklhost, in the middle of a run. Everything that
// lklrun has created on the host must be removed.
func TestDriverKilled(t *testing.T) {
	for name, lay := range map[string]func(*wire){
		"macvtap":                 layMacvtap,
		"tap, bridged by the run": layBridged,
		"tap, nat":                layNAT,
	} {
		for _, who := range []string{"pid", "host_pid"} {
			t.Run(name+", "+who, func(t *testing.T) {
				w := newWire(t)
				lay(w)
				was := w.state()
				d := w.start("supervise", w.flag)
				d.ping()
				if err := unix.Kill(kit.ProcessOf(t, d.Talker, who), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				d.Proc.Wait(kit.Limit)
				kit.Within(kit.Limit, func() bool { return w.state() == was })
				w.same(was)
				kit.WaitFor(t, "the end of all processes", kit.Limit, func() bool {
					return strings.TrimSpace(kit.Host.Run(t, "ip", "netns", "pids", w.here.Name)) == ""
				})
			})
		}
	}
}

// TestDriverRefused checks devices that cannot be used: lklrun prints one line and
// changes nothing.
func TestDriverRefused(t *testing.T) {
	w := newWire(t)
	w.here.Bridge(t, "br0")
	w.here.Addr(t, "br0", "10.88.0.2/24")
	w.here.Run(t, "ip", "tuntap", "add", "tun0", "mode", "tun")
	w.here.Run(t, "ip", "link", "add", "v1", "type", "veth", "peer", "name", "v2")
	w.here.Run(t, "ip", "link", "set", "v1", "master", "br0")
	w.here.Tap(t, "tap0")
	w.here.Listen(t, "127.0.0.1:8099")
	was := w.state()
	publish := func(port, flag string) []string { return []string{"--publish", port, "--if", flag} }
	for _, tt := range []struct {
		names string
		flags []string
	}{
		{`--publish 8099:80: port 8099 of 127.0.0.1 is in use`, publish("8099:80", "user")},
		{`--publish 8098:80: only --if user has ports of the host`, publish("8098:80", "tap:tap0,ip=10.0.0.1/24")},
		{`--publish 10.9.9.9:80:80: 10.9.9.9 is not an address of this host`, publish("10.9.9.9:80:80", "user")},
	} {
		cmd := w.here.Command(append(append([]string{kit.Bin("lklrun")}, tt.flags...), "--", "echo", "released")...)
		kit.OneLine(t, kit.Run(t, kit.Limit, cmd), 2, tt.names)
		if w.same(was); t.Failed() {
			t.Fatal(tt.flags)
		}
	}
	for flag, names := range map[string]string{
		"tap:new0,bridge=v0":  `bridge: v0 is not a bridge`,
		"tap:new0,bridge=br9": `bridge: the host has no device br9`,
		"tap:tap0,nat":        `nat: tap tap0 already exists`,
		"tap:new0,nat,ip=10.0.0.1/31,gw=10.0.0.0,ip6=fd00::1/128": `nat: fd00::1/128 has room for only one address`,
		"tap:new0,nat,ip=10.88.0.77/24":                           `nat: the host already has a route to 10.88.0.0/24, .*ip=`,
		"macvtap:nosuch0":                                         `the host has no device nosuch0`,
		"macvtap:lo":                                              `lo is not an Ethernet device`,
		"macvtap:tun0":                                            `tun0 is not an Ethernet device.*rawip:tun0`,
		"macvtap:/dev/tap0":                                       `/dev/tap0 is not the path of a macvtap`,
		"macvtap:/dev/tap77":                                      `no device has the index 77`,
		"macvtap:/dev/null":                                       `expected /dev/tapN`,
		"macvtap:v0,mtu=9000":                                     `mtu: 9000 is greater than the MTU of v0, 1500`,
		"macvtap:v1":                                              `v1 belongs to a bridge.*tap:NAME,bridge=`,
	} {
		cmd := w.here.Command(kit.Bin("lklrun"), "--if", flag, "--", "echo", "released")
		kit.OneLine(t, kit.Run(t, kit.Limit, cmd), 2, names)
		if w.same(was); t.Failed() {
			t.Fatal(flag)
		}
	}

	w.here.Run(t, "ip", "link", "add", "mv0", "link", "v0", "type", "macvtap", "mode", "passthru")
	was = w.state()
	cmd := w.here.Command(kit.Bin("lklrun"), "--if", "macvtap:v0,ip=10.90.0.10/24", "--", "echo", "released")
	kit.OneLine(t, kit.Run(t, kit.Limit, cmd), 125, `creating a macvtap on v0: .*mode passthru`)
	w.same(was)
}

// TestNATFirewalls checks firewalls that drop forwarded packets. They must let the
// stacks' packets through, and must be unchanged afterwards. The last of two runs turns
// forwarding off.
func TestNATFirewalls(t *testing.T) {
	for name, wall := range map[string][]string{
		"nft":      {"nft", "add table inet wall\nadd chain inet wall forwarded { type filter hook forward priority 0; policy drop; }\nadd rule inet wall forwarded ip daddr 10.99.0.0/16 accept"},
		"iptables": {"sh", "-c", "for t in iptables ip6tables; do $t -P FORWARD DROP && $t -A FORWARD -i none0 -j ACCEPT || exit; done"},
		"both":     {"sh", "-c", "iptables -P FORWARD DROP && ip6tables -P FORWARD DROP && nft 'add table ip wall\n add chain ip wall forwarded { type filter hook forward priority 10; policy drop; }'"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			layNAT(w)
			w.here.Run(t, "sysctl", "-qw", "net.ipv6.conf.v0.accept_ra=1")
			w.here.Run(t, wall...)
			was := w.state()
			w.flag = "tap:new0,nat"
			first := w.start("supervise", w.flag)
			second := w.start("supervise", "tap:new1,nat")
			first.ping()
			second.ping()
			if got := w.here.Run(t, "sysctl", "-n", "net.ipv6.conf.v0.accept_ra"); got != "2\n" {
				t.Errorf("a router that no longer hears of its own: accept_ra is %s", got)
			}
			// The server sees the host's address as the source.
			if got := first.Say("name(%q, %d)", farAddr, w.tells(farAddr)); !strings.HasPrefix(got, hereAddr+":") {
				t.Errorf("far sees %s", got)
			}
			ends(first)
			second.tcpOut()
			ends(second)
			w.same(was)
		})
	}
}

// ends ends one of several programs on a wire.
func ends(d *driven) {
	d.T().Helper()
	if r := d.End(); r.Status != 0 {
		d.T().Errorf("the program: %v", r)
	}
}

// tells accepts one connection at addr in far and sends the peer its own address.
func (w *wire) tells(addr string) int {
	w.Helper()
	l := w.far.Listen(w, net.JoinHostPort(addr, "0"))
	go func() {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		defer c.Close()
		_, _ = io.WriteString(c, c.RemoteAddr().String()) // on an error, the other end reports it
	}()
	return l.Addr().(*net.TCPAddr).Port
}
