// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/gateway_errors.py
var gatewayErrors string

const nearHost, nearPeer, nearHost6, nearPeer6 = "10.71.10.1", "10.71.10.2", "fd71:10::1", "fd71:10::2"

// gatewaySite returns a host with a network, and a peer in it that answers TCP and UDP on
// port 7.
func gatewaySite(t *testing.T) (host, peer *kit.Netns) {
	t.Helper()
	kit.Need(t, "ip", "nft", "ping", "curl", "/usr/bin/python3")
	host, peer = kit.NewNetns(t, "host"), kit.NewNetns(t, "peer")
	host.Run(t, "ip", "link", "set", "lo", "up")
	kit.Veth(t, host, "v0", peer, "p0")
	host.Addr(t, "v0", nearHost+"/24", nearHost6+"/64")
	peer.Addr(t, "p0", nearPeer+"/24", nearPeer6+"/64")
	peer.EchoTCP(t, "0.0.0.0:7")
	peer.EchoUDP(t, nearPeer+":7")
	return host, peer
}

// TestGatewayErrors compares the errors of the host's connect() with those that a program
// gets behind the user-mode gateway: those of the host, or those that a router's ICMP error
// causes. The engine supervise has only ECONNRESET for datagrams.
func TestGatewayErrors(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	for _, kind := range []string{"prohibit", "unreachable", "blackhole"} {
		n := map[string]int{"prohibit": 1, "unreachable": 2, "blackhole": 3}[kind]
		host.Run(t, "ip", "route", "add", kind, fmt.Sprintf("198.51.100.%d", n))
		host.Run(t, "ip", "route", "add", kind, fmt.Sprintf("fd71:99::%d", n))
	}
	host.Run(t, "nft", "add table inet t; add chain inet t o { type filter hook output priority 0; }; add rule inet t o meta l4proto { tcp, udp } th dport 81 drop")
	table := []struct{ to, native, want string }{
		{"tcp " + nearPeer + " 9", "ECONNREFUSED", "ECONNREFUSED"},
		{"tcp " + nearPeer6 + " 9", "ECONNREFUSED", "ECONNREFUSED"},
		{"tcp 192.0.2.1 9", "ENETUNREACH", "ENETUNREACH"},
		{"tcp 2001:db8::1 9", "ENETUNREACH", "ENETUNREACH"},
		{"tcp 10.71.10.99 9", "EHOSTUNREACH", "EHOSTUNREACH"},
		{"tcp fd71:10::99 9", "EHOSTUNREACH", "EHOSTUNREACH"},
		{"tcp 198.51.100.1 9", "EACCES", "EHOSTUNREACH"},
		{"tcp fd71:99::1 9", "EACCES", "EACCES"},
		{"tcp 198.51.100.2 9", "EHOSTUNREACH", "EHOSTUNREACH"},
		{"tcp fd71:99::2 9", "EHOSTUNREACH", "EHOSTUNREACH"},
		{"tcp 198.51.100.3 9", "EINVAL", "ENETUNREACH"},
		{"tcp fd71:99::3 9", "EINVAL", "ENETUNREACH"},
		{"udp " + nearPeer + " 9", "ECONNREFUSED", "ECONNREFUSED"},
		{"udp " + nearPeer6 + " 9", "ECONNREFUSED", "ECONNREFUSED"},
		{"udp " + nearPeer + " 81", "EPERM", "EHOSTUNREACH"},
		{"udp " + nearPeer6 + " 81", "EPERM", "EACCES"},
		{"udp " + nearPeer + " 7", "OK", "OK"}, // the errors of the others are not its own
	}
	args, native, preload, supervise := []string{"/usr/bin/python3", "-c", gatewayErrors}, "", "", ""
	for _, c := range table {
		args = append(args, c.to)
		native += c.to + " " + c.native + "\n"
		preload += c.to + " " + c.want + "\n"
		if strings.HasPrefix(c.to, "udp") && c.want != "OK" {
			c.want = "ECONNRESET"
		}
		supervise += c.to + " " + c.want + "\n"
	}
	if out := kit.OK(t, 2*kit.Limit, host.Command(args...)); out != native {
		t.Errorf("on the host:\n%s", out)
	}
	for _, iface := range gateways {
		for engine, want := range map[string]string{"preload": preload, "supervise": supervise} {
			cmd := host.Command(append([]string{kit.Bin("lklrun"), "--name", kit.NewName(), "--engine", engine, "--if", iface, "--"}, args...)...)
			r := kit.Run(t, 2*kit.Limit, cmd)
			if r.Stdout != want {
				t.Errorf("%s, %s:\n%swant\n%s", iface, engine, r, want)
			}
			for line, n := range map[string]int{"gateway cannot connect to ": 3, "firewall prohibits": 1, "type blackhole": 1, "routes or security rules": 1} {
				if strings.Count(r.Stderr, line) != n {
					t.Errorf("%s, %s: not %d times %q:\n%s", iface, engine, n, line, r.Stderr)
				}
			}
		}
	}
}

// TestGatewayReset checks that lklctl names the gateway as the sender of a reset, and the peer
// on another interface.
func TestGatewayReset(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	for iface, want := range map[string]string{
		"user,tcp=lklrun":         "\nPEER: the user-mode gateway sent the reset: the destination refused",
		"user":                    "\nPEER: the user-mode gateway sent the reset: the destination refused",
		"raw:v0,ip=10.71.10.3/24": "\nPEER: the peer sent the reset\n",
	} {
		name := kit.NewName()
		k := kit.StartTalker(t, name, host.Command(kit.Bin("lklrun"), "-q", "--name", name, "--if", iface, "--", "/usr/bin/python3", "-uc", kit.TalkerProgram))
		if got := k.Say("socket.socket().connect_ex((%q, 9))", nearPeer); got != "111" {
			t.Errorf("%s: connect: %s", iface, got)
		}
		if out := kit.Lklctl(t, "-n", name, "resets"); !strings.Contains(out, want) {
			t.Errorf("%s: %s", iface, out)
		}
		k.End()
	}
}

// TestGatewayNoPorts checks a host without free ports: the program gets a router's error,
// lklrun names the cause, and other destinations are still reachable.
func TestGatewayNoPorts(t *testing.T) {
	t.Parallel()
	const script = `
import errno, socket
def one(port=7):
    try: return socket.create_connection(("` + nearPeer + `", port), 10)
    except OSError as e: return errno.errorcode[e.errno]
open_ = [one() for _ in range(4)]
print(all(not isinstance(c, str) for c in open_), one(), one(), one(9))
`
	for _, iface := range gateways {
		host, _ := gatewaySite(t) // without ports that wait for the end of a former connection
		host.Run(t, "sysctl", "-qw", "net.ipv4.ip_local_port_range=50000 50003")
		r := kit.Run(t, kit.Limit, host.Command(kit.Bin("lklrun"), "--name", kit.NewName(), "--if", iface, "--", "/usr/bin/python3", "-c", script))
		if r.Stdout != "True EHOSTUNREACH EHOSTUNREACH ECONNREFUSED\n" || strings.Count(r.Stderr, "cannot assign requested address: the host has no free port") != 1 {
			t.Errorf("%s: %v", iface, r)
		}
	}
}

// TestGatewayPing checks pings to elsewhere: answers, errors of routers, and one line if the
// host does not permit them. A ping never succeeds for an address that does not answer.
func TestGatewayPing(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	for _, iface := range gateways {
		ping := func(args ...string) kit.Result {
			return kit.Run(t, kit.Limit, host.Command(append([]string{kit.Bin("lklrun"), "--name", kit.NewName(), "--if", iface, "--", "ping", "-n"}, args...)...))
		}
		host.Run(t, "sysctl", "-qw", "net.ipv4.ping_group_range=1 0")
		for range 2 {
			r := ping("-c2", "-i0.2", "-W1", nearPeer)
			if r.Status != 1 || strings.Count(r.Stderr, "net.ipv4.ping_group_range excludes the group 0") != 1 || !strings.Contains(r.Stdout, "Packet filtered") {
				t.Errorf("%s, not permitted: %v", iface, r)
			}
		}
		host.Run(t, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647")
		for _, c := range []struct {
			args   []string
			status int
			want   string
		}{
			{[]string{"-c2", "-i0.2", nearPeer}, 0, " 0% packet loss"},
			{[]string{"-c2", "-i0.2", nearPeer6}, 0, " 0% packet loss"},
			{[]string{"-c1", "-s", "20000", nearPeer}, 0, "20008 bytes from " + nearPeer + ": icmp_seq=1"},
			{[]string{"-c1", nearHost}, 0, "bytes from " + nearHost}, // the host's own address
			{[]string{"-c1", "192.168.127.254"}, 0, " 0% packet loss"},
			{[]string{"-c1", "-t1", nearPeer}, 1, "From 192.168.127.1 icmp_seq=1 Time to live exceeded"},
			{[]string{"-c1", "10.71.10.99"}, 1, "Destination Host Unreachable"},
			{[]string{"-c1", "fd71:10::99"}, 1, "Address unreachable"},
			{[]string{"-c1", "192.0.2.1"}, 1, "Destination Net Unreachable"},
		} {
			if r := ping(c.args...); r.Status != c.status || !strings.Contains(r.Stdout, c.want) || strings.Contains(r.Stderr, "ping") {
				t.Errorf("%s, ping %s: want status %d, %q: %v", iface, c.args, c.status, c.want, r)
			}
		}
	}
}

// TestPublishFamilies checks that a published port reaches a server of either family,
// whatever family the client uses.
func TestPublishFamilies(t *testing.T) {
	t.Parallel()
	host, _ := gatewaySite(t)
	const server = `
import socket, sys, threading
def listen(kind, address):
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    if ":" in address: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, 80))
    return s
t = listen(socket.SOCK_STREAM, sys.argv[1]); t.listen()
u = listen(socket.SOCK_DGRAM, sys.argv[1])
def datagrams():
    while True: u.sendto(*u.recvfrom(100))
threading.Thread(target=datagrams, daemon=True).start()
print("ready", flush=True)
while True:
    c, _ = t.accept(); c.sendall(b"hello"); c.close()
`
	const client = `
import socket, sys
f = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(f, socket.SOCK_STREAM); s.settimeout(10); s.connect((sys.argv[1], 8080))
try: got = s.recv(10)
except ConnectionResetError: got = b""
if not got: sys.exit("tcp: reset")
u = socket.socket(f, socket.SOCK_DGRAM); u.settimeout(10); u.connect((sys.argv[1], 8080))
for m in (b"one", b"two"):
    u.send(m)
    if u.recv(10) != m: sys.exit("udp: wrong answer")
`
	for _, iface := range gateways {
		for _, at := range []string{"0.0.0.0", "::"} {
			p := kit.Start(t, host.Command(kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--if", iface, "--publish", "8080:80", "--publish", "8080:80/udp", "--",
				"/usr/bin/python3", "-c", server, at))
			kit.WaitFor(t, "the server", kit.Limit, func() bool {
				out, _ := p.Output()
				return out == "ready\n" || !p.Running()
			})
			for _, to := range []string{"127.0.0.1", "::1"} {
				if r := kit.Run(t, kit.Limit, host.Command("/usr/bin/python3", "-c", client, to)); r.Status != 0 {
					t.Errorf("%s: the server listens on %s, the client connects to %s: %v", iface, at, to, r)
				}
			}
			p.Signal(syscall.SIGTERM)
			p.Wait(kit.Limit)
		}
	}
}
