// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

const waitLimit = 10 * time.Second

// tun creates a tun device that ends with the test, and returns the program's
// side.
func tun(t *testing.T, name string) *os.File {
	t.Helper()
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	req, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		t.Fatal(err)
	}
	kit.Host.Run(t, "ip", "link", "set", name, "up")
	return f
}

func veth(t *testing.T, a, b string) {
	t.Helper()
	kit.Host.Run(t, "ip", "link", "add", a, "type", "veth", "peer", "name", b)
	t.Cleanup(func() { kit.Host.Run(t, "ip", "link", "del", a) })
	for _, d := range []string{a, b} {
		kit.Host.Run(t, "ip", "link", "set", d, "up")
	}
}

func TestLookDevice(t *testing.T) {
	kit.Need(t)
	veth(t, "lp0", "lp1")
	for _, args := range []string{
		"addr add 192.0.2.2/24 dev lp0", "addr add 192.0.2.3/24 dev lp0",
		"addr add 2001:db8::2/64 dev lp0 nodad", "addr add 2001:db8::3/64 dev lp0 nodad preferred_lft 0",
		"link set lp0 mtu 1400", "route add default via 192.0.2.9 dev lp0 metric 20",
		"route add default via 192.0.2.1 dev lp0 metric 10", "route add default via 192.0.2.8 dev lp0 table 7",
		"-6 route add default via fe80::1 dev lp0",
	} {
		kit.Host.Run(t, append([]string{"ip"}, strings.Fields(args)...)...)
	}
	var d DeviceState
	kit.WaitFor(t, "carrier of lp0", waitLimit, func() bool {
		var err error
		if d, err = LookDevice("lp0"); err != nil {
			t.Fatal(err)
		}
		return d.Up
	})
	if d.MTU != 1400 || d.Type != unix.ARPHRD_ETHER || d.MAC == [6]byte{} || d.Ifindex == 0 {
		t.Errorf("%+v", d)
	}
	if got := d.GW4.String() + " " + d.GW6.String(); got != "192.0.2.1 fe80::1" {
		t.Errorf("gateways %s", got)
	}
	if len(d.Lent) != 2 || d.Lent[0].String() != "192.0.2.2/24" || d.Lent[1].String() != "2001:db8::2/64" {
		t.Errorf("it lends %v", d.Lent)
	}
	if !d.Has(netip.MustParseAddr("192.0.2.3")) || !d.Has(netip.MustParseAddr("2001:db8::3")) || d.Has(netip.MustParseAddr("192.0.2.1")) {
		t.Errorf("its addresses: %v", d.Addrs)
	}

	// Android keeps the routes of each network in a separate table.
	for _, metric := range []string{"20", "10"} {
		kit.Host.Run(t, "ip", "route", "del", "default", "dev", "lp0", "metric", metric)
	}
	if d, err := LookDevice("lp0"); err != nil || d.GW4.String() != "192.0.2.8" {
		t.Errorf("gateway %v, %v", d.GW4, err)
	}

	// The peer address of a point-to-point device is not its own.
	tun(t, "lp2")
	kit.Host.Run(t, "ip", "addr", "add", "198.51.100.1", "peer", "198.51.100.2", "dev", "lp2")
	if d, err := LookDevice("lp2"); err != nil || d.Type != unix.ARPHRD_NONE || len(d.Lent) != 1 || d.Lent[0].String() != "198.51.100.1/32" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestCheckPacket(t *testing.T) {
	kit.Need(t)
	veth(t, "lp0", "lp1")
	tun(t, "lp2")
	for _, tc := range []struct {
		name  string
		rawIP bool
		want  string // part of the error; empty: no error
	}{
		{"lp0", false, ""},
		{"lp2", true, ""},
		{"lp0", true, "lp0 is an Ethernet device; use raw:lp0"},
		{"lp2", false, "lp2 has no link layer; use rawip:lp2"},
		{"lo", false, "lo is the host's loopback"},
		{"lo", true, "lo is the host's loopback"},
		{"lp9", false, "the host has no device lp9; `ip link` lists its devices"},
	} {
		_, err := CheckPacket(tc.name, tc.rawIP)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s, raw IP %v: %v", tc.name, tc.rawIP, err)
		}
	}
}

// A socket with its own Ethernet address receives frames to that address and to
// groups. The device is in promiscuous mode as long as the socket exists.
func TestOpenPacket(t *testing.T) {
	kit.Need(t)
	veth(t, "lp0", "lp1")
	mac := [6]byte{2, 0, 0, 1, 2, 3}
	filter, err := OwnFilter(mac)
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenPacket(PacketOptions{Device: "lp0", Promiscuous: true, Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	defer p.File.Close()
	promiscuous := func() bool {
		return strings.Contains(kit.Host.Run(t, "ip", "-d", "link", "show", "lp0"), "promiscuity 1 ")
	}
	if !p.VnetHdr || !promiscuous() {
		t.Errorf("header %v, promiscuous %v", p.VnetHdr, promiscuous())
	}
	peer, err := OpenPacket(PacketOptions{Device: "lp1"})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.File.Close()
	other := mac
	other[5]++
	frames := []struct {
		to    [6]byte
		heard bool
	}{{other, false}, {mac, true}, {[6]byte{3, 0, 0, 1, 2, 3}, true}, {[6]byte{2, 0, 0, 1, 3, 3}, false}, {[6]byte{255, 255, 255, 255, 255, 255}, true}}
	for n, f := range frames {
		b := make([]byte, VnetHdrLen+60)
		copy(b[VnetHdrLen:], f.to[:])
		b[VnetHdrLen+12], b[VnetHdrLen+13] = 0x88, 0xb5 // for experiments (IEEE 802)
		b[VnetHdrLen+14] = byte(n)
		if _, err := peer.File.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for n, f := range frames {
		if !f.heard {
			continue
		}
		b := make([]byte, 256)
		got := -1
		kit.WaitFor(t, "a frame", waitLimit, func() bool {
			size, err := unix.Read(int(p.File.Fd()), b)
			if err == unix.EAGAIN || err == nil && (b[VnetHdrLen+12] != 0x88 || b[VnetHdrLen+13] != 0xb5) {
				return false // no frame yet, or a frame that the host itself sent
			}
			if err != nil || size < VnetHdrLen+15 {
				t.Fatal(size, err)
			}
			got = int(b[VnetHdrLen+14])
			return true
		})
		if got != n {
			t.Errorf("frame %d came in the place of %d", got, n)
		}
	}
	p.File.Close()
	if promiscuous() {
		t.Error("lp0 stays promiscuous")
	}

	// This device has no link layer, and its socket has room for a
	// virtio_net_hdr.
	user := tun(t, "lp2")
	raw, err := OpenPacket(PacketOptions{Device: "lp2", RawIP: true})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.File.Close()
	if !raw.VnetHdr {
		t.Error("a tun without a header of virtio")
	}
	packet := make([]byte, VnetHdrLen+24)
	packet[VnetHdrLen] = 0x45
	if _, err := unix.SendmsgN(int(raw.File.Fd()), packet, nil, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: raw.Ifindex}, 0); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 2048); ; { // skip the packets that the kernel's IPv6 sends
		n, err := unix.Read(int(user.Fd()), b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 24 && b[0] == 0x45 {
			break
		}
	}
}

func TestFDPacket(t *testing.T) {
	kit.Need(t)
	veth(t, "lp0", "lp1")
	f := tun(t, "lp2")
	open := func(typ int, name string) int {
		fd, err := unix.Socket(unix.AF_PACKET, typ|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if name != "" {
			d, err := LookDevice(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: d.Ifindex}); err != nil {
				t.Fatal(err)
			}
		}
		return fd
	}
	for _, tc := range []struct {
		fd   int
		kind FDKind
		want string
	}{
		{int(f.Fd()), FDTun, ""},
		{open(unix.SOCK_RAW, "lp0"), FDPacket, ""},
		{open(unix.SOCK_DGRAM, "lp2"), FDCooked, ""},
		{open(unix.SOCK_RAW, "lp2"), FDCooked, ""},
		{open(unix.SOCK_DGRAM, "lp0"), 0, "is a packet socket of type 2 on a device of type 1; expected"},
		{open(unix.SOCK_RAW, ""), 0, "is not bound to a device"},
	} {
		if _, err := unix.FcntlInt(uintptr(tc.fd), unix.F_SETFD, 0); err != nil { // makes it look inherited
			t.Fatal(err)
		}
		kind, err := CheckFD(tc.fd)
		if kind != tc.kind || (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("kind %d, %v; want %d, %q", kind, err, tc.kind, tc.want)
		}
	}
}
