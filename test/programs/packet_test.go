// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// wants checks that each line matches one of the expressions, in this order.
func wants(t *testing.T, got []string, want ...string) {
	t.Helper()
	for i, w := range want {
		if i >= len(got) || !regexp.MustCompile(w).MatchString(got[i]) {
			t.Errorf("packet %d does not match %q", i, w)
		}
	}
	if len(got) != len(want) || t.Failed() {
		t.Fatalf("want %d packets, got:\n%s", len(want), strings.Join(got, "\n"))
	}
}

// sniffers returns the number of packet sockets in the stack itself.
func sniffers(k *kit.Talker) int {
	return len(kit.Lines(kit.Lklctl(k.T, "-n", k.Name, "cat", "/proc/net/packet"))) - 1
}

// TestTcpdump checks that the unmodified tcpdump sees the packets of the stack, once each
// and with the right direction, on a device, on the loopback device and on all devices.
func TestTcpdump(t *testing.T) {
	kit.Need(t, "tcpdump", "ping")
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	k.Say("1") // wait until the target runs
	ping := func(args ...string) {
		kit.OK(t, kit.Limit, k.Inside(append([]string{"ping", "-n", "-c", "1", "-W", "10"}, args...)...))
	}
	const request, reply = ` ICMP echo request, .* length 64`, ` ICMP echo reply, .* length 64`
	out, back := "IP "+kit.StackAddr+" > "+kit.ServerAddr+":", "IP "+kit.ServerAddr+" > "+kit.StackAddr+":"

	c := kit.StartTcpdump(t, k.Inside("tcpdump", "-lnt", "-i", "eth0", "icmp"))
	ping("127.0.0.1")
	ping(kit.ServerAddr)
	wants(t, c.Until(2), out+request, back+reply)

	c = kit.StartTcpdump(t, k.Inside("tcpdump", "-lnt", "-i", "lo", "icmp"))
	ping(kit.ServerAddr)
	ping("127.0.0.1")
	wants(t, c.Until(2), "IP 127.0.0.1 > 127.0.0.1:"+request, "IP 127.0.0.1 > 127.0.0.1:"+reply)

	c = kit.StartTcpdump(t, k.Inside("tcpdump", "-lnt", "-i", "any", "icmp"))
	ping(kit.ServerAddr)
	ping("127.0.0.1")
	wants(t, c.Until(4), "eth0 +Out "+out+request, "eth0 +In +"+back+reply,
		"lo +In +IP 127.0.0.1 > 127.0.0.1:"+request, "lo +In +IP 127.0.0.1 > 127.0.0.1:"+reply)

	// Checksums are valid, whichever side computes them. Two tcpdumps capture at once.
	c = kit.StartTcpdump(t, k.Inside("tcpdump", "-lntv", "-i", "lo", "tcp"))
	c2 := kit.StartTcpdump(t, k.Inside("tcpdump", "-lnt", "-i", "lo", "tcp"))
	if got := k.Say(`socket.socket().connect_ex(("127.0.0.1", 9))`); got != "111" {
		t.Errorf("connecting to nobody: %s", got)
	}
	wants(t, c2.Until(2), `Flags \[S\]`, `Flags \[R\.\]`)
	if got := strings.Join(c.Until(4), "\n"); strings.Count(got, "(correct)") != 2 {
		t.Errorf("want two right checksums:\n%s", got)
	}

	kit.WaitFor(t, "the end of copying", kit.Limit, func() bool { return sniffers(k) == 0 })
	k.End()
	before.Same()
}

// TestPacketDevices checks that packet sockets see the stack's devices, also those that
// are added, changed and removed meanwhile. Other tools must not see the devices that
// this mechanism uses.
func TestPacketDevices(t *testing.T) {
	kit.Need(t, "tcpdump", "ping")
	s := kit.NewSite(t)
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	k.Say("1") // wait until the target runs
	ip := func(args ...string) string {
		return kit.OK(t, kit.Limit, k.Inside(append([]string{"ip"}, args...)...))
	}

	c := kit.StartTcpdump(t, k.Inside("tcpdump", "-lnt", "-i", "any", "icmp and host 10.75.0.2"))
	ip("link", "add", "name", "d0", "type", "dummy")
	ip("link", "set", "d0", "mtu", "2000", "up")
	ip("addr", "add", "10.75.0.1/24", "dev", "d0")
	lost := k.Inside("ping", "-n", "-c", "1", "-W", "1", "-s", "1900", "10.75.0.2") // a dummy device does not answer
	if r := kit.Run(t, kit.Limit, lost); r.Status != 1 {
		t.Errorf("ping over a dummy device: %v", r)
	}
	wants(t, c.Until(1), `^d0 +Out +IP 10\.75\.0\.1 > 10\.75\.0\.2: ICMP echo request, .* length 1908`)

	k.Say(`keep.__setitem__("p", socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300))`)
	index := func(dev string) string {
		return k.Say(`__import__("struct").unpack("16si20x", __import__("fcntl").ioctl(keep["p"], 0x8933, %q.ljust(40, chr(0)).encode()))[1]`, dev)
	}
	for _, dev := range []string{"lo", "eth0", "d0"} {
		if got, want := index(dev), k.Say("socket.if_nametoindex(%q)", dev); got != want {
			t.Errorf("%s has number %s for packet sockets, %s for all others", dev, got, want)
		}
	}
	ip("link", "set", "d0", "down")
	ip("link", "set", "d0", "name", "d1")
	if got := index("d0"); !strings.HasPrefix(got, "OSError") {
		t.Errorf("the old name still is: %s", got)
	}
	if got, want := index("d1"), k.Say(`socket.if_nametoindex("d1")`); got != want {
		t.Errorf("d1 has number %s for packet sockets, %s for all others", got, want)
	}
	ip("link", "del", "d1")
	if got := index("d1"); !strings.HasPrefix(got, "OSError") {
		t.Errorf("a device that is gone still is: %s", got)
	}
	// Tagged frames keep their tags. The stack does not forward frames from outside.
	ip("link", "add", "link", "eth0", "name", "eth0.5", "type", "vlan", "id", "5")
	ip("addr", "add", "10.82.0.1/24", "dev", "eth0.5")
	ip("link", "set", "eth0.5", "up")
	const vlan5, question, answer = `vlan 5, .* `, `Request who-has 10\.82\.0\.1 .*tell 10\.82\.0\.2`, `Reply 10\.82\.0\.1 is-at`
	wire := kit.StartTcpdump(t, s.Server.Command("tcpdump", "-lnte", "-i", "s0", "vlan and arp"))
	c = kit.StartTcpdump(t, k.Inside("tcpdump", "-lnte", "-i", "eth0", "vlan and arp"))
	c2 := kit.StartTcpdump(t, k.Inside("tcpdump", "-lnt", "-i", "eth0.5", "arp"))
	s.Server.Run(t, "/usr/bin/python3", "-c", `
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("s0", 0))
me = s.getsockname()[4]
s.send(b"\xff" * 6 + me + bytes.fromhex("81000005080600010800060400" "01") + me + bytes([10, 82, 0, 2]) + bytes(6) + bytes([10, 82, 0, 1]))`)
	wants(t, c.Until(2), vlan5+question, vlan5+answer)
	wants(t, c2.Until(2), question, answer)
	wants(t, wire.Until(2), vlan5+question, vlan5+answer)
	ip("link", "del", "eth0.5")

	want := fmt.Sprint([]string{"lo", "eth0"})
	if got := fmt.Sprint(regexp.MustCompile(`\w+`).FindAllString(k.Say(`" ".join(n for _, n in socket.if_nameindex())`), -1)); got != want {
		t.Errorf("the devices are %s, want %s", got, want)
	}
	k.End()
}

// TestPacketsSent checks that packets from packet sockets leave once by the stack's
// device, and that answers reach the program. It uses arping, and a DHCP client that gets
// the stack's address from a server on the wire.
func TestPacketsSent(t *testing.T) {
	kit.Need(t, "tcpdump", "arping", "udhcpc", "dnsmasq")
	s := kit.NewSite(t)
	dir := kit.Dir(t)
	before := kit.Take(t, s.Server)
	mac := strings.ToUpper(strings.TrimSpace(s.Server.Run(t, "cat", "/sys/class/net/s0/address")))
	k := s.Talk("--stack", "vanilla", "--if", s.TapIf())
	k.Say("1") // wait until the target runs
	c := kit.StartTcpdump(t, s.Server.Command("tcpdump", "-lnt", "-i", "s0", "arp"))
	got := kit.OK(t, kit.Limit, k.Inside("arping", "-f", "-w", "20", "-I", "eth0", kit.ServerAddr))
	if !strings.Contains(got, "Unicast reply from "+kit.ServerAddr+" ["+mac+"]") || !strings.Contains(got, "Received 1 response") {
		t.Errorf("arping: %s", got)
	}
	wants(t, c.Until(2), "ARP, Request who-has "+kit.ServerAddr+" .*tell "+kit.StackAddr, "ARP, Reply "+kit.ServerAddr)

	// Repeat the test on lo: the program sends a hand-made packet to its own UDP socket.
	kit.Lklctl(t, "-n", k.Name, "sysctl", "-w", "net.ipv4.conf.lo.route_localnet=1", "net.ipv4.conf.lo.accept_local=1")
	k.Say(`keep.__setitem__("u", socket.socket(type=socket.SOCK_DGRAM))`)
	k.Say(`keep["u"].bind(("127.0.0.1", 7000))`)
	k.Say(`keep.__setitem__("p", socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))`)
	frame := strings.Repeat("00", 12) + "0800" + // zero addresses, IP
		"45000020000000004011" + "7ccb" + "7f0000017f000001" + // 32 bytes, UDP, both addresses 127.0.0.1
		"00011b58000c0000" + "62796861" // to port 7000, 12 bytes, no checksum
	k.Say(`keep.__setitem__("q", socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x0008))`)
	k.Say(`keep["p"].sendto(bytes.fromhex(%q), ("lo", 0x800))`, frame)
	if got := k.Say(`keep["q"].settimeout(20) or keep["q"].recvmsg(100, 100)[0][-4:]`); got != "b'byha'" {
		t.Errorf("recvmsg() of the packet: %s", got)
	}
	if got := k.Say(`keep["u"].settimeout(20) or keep["u"].recv(100)`); got != "b'byha'" {
		t.Errorf("a datagram made by hand: %s", got)
	}
	k.End()

	server := kit.Start(t, s.Server.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0",
		"--pid-file=", "--leasefile-ro", "--user=root", "--log-facility=-", "--log-dhcp",
		"--dhcp-range=10.73.0.100,10.73.0.109", "--dhcp-option=option:router,"+kit.ServerAddr))
	kit.WaitFor(t, "the DHCP server", kit.Limit, func() bool { return s.Server.Listening(t, "u", 67) })
	k = s.Talk("-q", "--stack", "vanilla", "--if", "tap:tap0")
	k.Say("1")
	script := filepath.Join(dir, "script")
	text := "#!/bin/sh\ntest \"$1\" = bound || exit 0\nip addr add $ip/$mask dev $interface && ip route add default via $router\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	kit.OK(t, kit.Limit, k.Inside("udhcpc", "-f", "-q", "-n", "-i", "eth0", "-t", "10", "-T", "2", "-s", script))
	if got := kit.OK(t, kit.Limit, k.Inside("ip", "route")); !strings.Contains(got, "default via "+kit.ServerAddr) || !strings.Contains(got, "src 10.73.0.10") {
		t.Errorf("routes by DHCP: %s", got)
	}
	kit.OK(t, kit.Limit, k.Inside("ping", "-c", "1", "-W", "10", kit.ServerAddr))
	k.End()
	server.Signal(syscall.SIGTERM)
	server.Wait(kit.Limit)
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	before.Same()
}

// TestTcpdumpUnprivileged checks that an ordinary user can capture on their own stack.
func TestTcpdumpUnprivileged(t *testing.T) {
	kit.Need(t, "tcpdump")
	kit.NewSite(t)
	bin, run := kit.PublicBin(t), kit.Dir(t)
	if err := os.Chown(run, kit.OrdinaryUID, kit.OrdinaryUID); err != nil {
		t.Fatal(err)
	}
	before := kit.Take(t)
	p := kit.Start(t, kit.AsUser(exec.Command(bin+"/lklrun", "-q", "--name", "u", "--", "sleep", "1000"), run))
	inside := func(args ...string) *exec.Cmd {
		return kit.AsUser(exec.Command(bin+"/lklctl", append([]string{"exec", "--"}, args...)...), run)
	}
	kit.WaitFor(t, "the run", kit.Limit, func() bool { return kit.Run(t, kit.Limit, inside("true")).Status == 0 })
	c := kit.StartTcpdump(t, inside("tcpdump", "-lnt", "-i", "eth0", "icmp"))
	kit.OK(t, kit.Limit, inside("ping", "-c", "1", "-W", "10", "192.168.127.1"))
	wants(t, c.Until(2), `192\.168\.127\.2 > 192\.168\.127\.1: ICMP echo request`, `192\.168\.127\.1 > 192\.168\.127\.2: ICMP echo reply`)
	p.Signal(syscall.SIGTERM)
	p.Wait(kit.Limit)
	before.Settles(kit.Limit)
}
