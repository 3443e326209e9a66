// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

var (
	ours4  = netip.MustParseAddr("192.0.2.1")
	also4  = netip.MustParseAddr("192.0.2.3")
	other4 = netip.MustParseAddr("192.0.2.2")
	ours6  = netip.MustParseAddr("2001:db8::1")
	also6  = netip.MustParseAddr("2001:db8:1::1")
	other6 = netip.MustParseAddr("2001:db8::2")
)

// packet builds an IP packet without checksums, which filters do not check. Its
// payload begins with l4. frag is the offset of a fragment in units of 8 bytes.
func packet(dst netip.Addr, proto byte, frag uint16, l4 []byte) []byte {
	if dst.Is4() {
		b := []byte{0x46, 0, 0, 24, 0, 1, 0, 0, 64, proto, 0, 0, 198, 51, 100, 1}
		binary.BigEndian.PutUint16(b[6:], frag)
		b = append(append(b, dst.AsSlice()...), 1, 1, 1, 1) // options, for a longer header
		b = append(b, l4...)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		return b
	}
	b := []byte{0x60, 0, 0, 0, 0, 0, proto, 64}
	src := netip.MustParseAddr("2001:db8:ff::1")
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	if frag != 0 {
		b[6] = unix.IPPROTO_FRAGMENT
		b = append(b, proto, 0, 0, 0, 0, 0, 0, 1)
		// Three bits follow the offset. The lowest one is the flag
		// "more fragments".
		binary.BigEndian.PutUint16(b[42:], frag<<3|frag>>13&1)
	}
	b = append(b, l4...)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ip6Head))
	return b
}

func ports(src, dst uint16) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	return b
}

const moreFragments = 0x2000

type probe struct {
	name   string
	pkt    []byte
	passes bool
}

func probes() []probe {
	icmp := func(t byte) []byte { return []byte{t, 0, 0, 0, 0, 0, 0, 0} }
	var all []probe
	add := func(name string, passes bool, pkt []byte) { all = append(all, probe{name, pkt, passes}) }
	for _, a := range []struct {
		ip   string
		ours bool
		addr netip.Addr
	}{
		{"ip4", true, ours4}, {"ip4, another of ours", true, also4}, {"ip4, not ours", false, other4},
		{"ip6", true, ours6}, {"ip6, another of ours", true, also6}, {"ip6, not ours", false, other6},
	} {
		for proto, name := range map[byte]string{unix.IPPROTO_TCP: a.ip + " tcp", unix.IPPROTO_UDP: a.ip + " udp"} {
			add(name+" before the range", false, packet(a.addr, proto, 0, ports(999, 999)))
			add(name+" first", a.ours, packet(a.addr, proto, 0, ports(1, 1000)))
			add(name+" last", a.ours, packet(a.addr, proto, 0, ports(1, 2000)))
			add(name+" behind the range", false, packet(a.addr, proto, 0, ports(1500, 2001)))
			add(name+" server", a.ours, packet(a.addr, proto, 0, ports(1, 80)))
			add(name+" another server", a.ours, packet(a.addr, proto, 0, ports(1, 8080)))
			add(name+" host's", false, packet(a.addr, proto, 0, ports(80, 22)))
			add(name+" first fragment", a.ours, packet(a.addr, proto, moreFragments, ports(1, 1500)))
			add(name+" first fragment, host's", false, packet(a.addr, proto, moreFragments, ports(1, 22)))
			add(name+" later fragment", a.ours, packet(a.addr, proto, 3, ports(1, 22)))
		}
		add(a.ip+" sctp", false, packet(a.addr, 132, 0, ports(1, 1500)))
	}
	for t, passes := range map[byte]bool{0: true, 3: true, 5: false, 8: false, 11: true, 12: true, 13: false} {
		add("icmp "+string('0'+rune(t)), passes, packet(ours4, unix.IPPROTO_ICMP, 0, icmp(t)))
		add("icmp to another "+string('0'+rune(t)), false, packet(other4, unix.IPPROTO_ICMP, 0, icmp(t)))
	}
	for t, passes := range map[byte]bool{1: true, 2: true, 3: true, 4: true, 128: false, 129: true, 130: false, 134: true, 135: false, 136: true} {
		add("icmp6 "+string('0'+rune(t)), passes, packet(ours6, unix.IPPROTO_ICMPV6, 0, icmp(t)))
		add("icmp6 to all "+string('0'+rune(t)), t == 134 || t == 136, packet(netip.MustParseAddr("ff02::1"), unix.IPPROTO_ICMPV6, 0, icmp(t)))
	}
	return all
}

// hear opens a packet socket with the filter on a device of this namespace.
func hear(dev string, typ int) (int, error) {
	ifi, err := net.InterfaceByName(dev)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	filter, err := Filter(typ == unix.SOCK_RAW, []netip.Addr{ours4, ours6, also4, also6}, Ports{First: 1000, Last: 2000, Listen: []uint16{8080, 80, 1500}})
	if err != nil {
		return -1, err
	}
	if err := attach(fd, filter); err != nil {
		return -1, err
	}
	all := uint16(unix.ETH_P_ALL)<<8 | unix.ETH_P_ALL>>8
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index})
}

func attach(fd int, filter []bpf.RawInstruction) error {
	ins := make([]unix.SockFilter, len(filter))
	for n, i := range filter {
		ins[n] = unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(ins)), Filter: &ins[0]})
}

// heard sends all probes and returns those that pass. Each probe ends with its
// number.
func heard(t *testing.T, fd int, all []probe, send func([]byte) error) map[string]bool {
	t.Helper()
	for n, p := range all {
		if err := send(append(p.pkt, byte(n>>8), byte(n))); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
	}
	// This last packet passes the filter. When it has arrived, no other
	// packet is in transit.
	end := append(packet(ours4, unix.IPPROTO_TCP, 0, ports(1, 1234)), 0xff, 0xff)
	if err := send(end); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	b := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		number := int(binary.BigEndian.Uint16(b[n-2:]))
		if number == 0xffff {
			return got
		}
		got[all[number].name] = true
	}
}

func wanted(all []probe) map[string]bool {
	want := map[string]bool{}
	for _, p := range all {
		if p.passes {
			want[p.name] = true
		}
	}
	return want
}

func TestFilterEthernet(t *testing.T) {
	kit.Need(t, "ip")
	a, b := kit.NewNetns(t, "filter"), kit.NewNetns(t, "filter")
	for _, n := range []*kit.Netns{a, b} { // without IPv6, the kernels send no packets of their own
		n.Run(t, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
	}
	kit.Veth(t, a, "v0", b, "v1")
	var fd int
	a.Do(t, func() (err error) { fd, err = hear("v0", unix.SOCK_RAW); return err })
	defer unix.Close(fd)

	var out int
	var mac, elsewhere net.HardwareAddr
	a.Do(t, func() error {
		ifi, err := net.InterfaceByName("v0")
		mac = ifi.HardwareAddr
		return err
	})
	elsewhere = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	b.Do(t, func() (err error) {
		ifi, err := net.InterfaceByName("v1")
		if err != nil {
			return err
		}
		if out, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(out, &unix.SockaddrLinklayer{Ifindex: ifi.Index})
	})
	defer unix.Close(out)
	frame := func(to net.HardwareAddr, typ uint16, pkt []byte) []byte {
		b := append(append([]byte(nil), to...), 2, 0, 0, 0, 0, 1)
		return append(binary.BigEndian.AppendUint16(b, typ), pkt...)
	}
	arp := func(op byte) []byte {
		return append([]byte{0, 1, 8, 0, 6, 4, 0, op, 2, 0, 0, 0, 0, 1, 192, 0, 2, 2}, append(append([]byte(mac), 192, 0, 2, 1), make([]byte, 18)...)...)
	}
	ip := probes()
	all := []probe{
		{"arp request", frame(net.HardwareAddr{255, 255, 255, 255, 255, 255}, unix.ETH_P_ARP, arp(1)), false},
		{"arp reply", frame(mac, unix.ETH_P_ARP, arp(2)), true},
		{"arp reply to another", frame(elsewhere, unix.ETH_P_ARP, arp(2)), false},
		{"to another machine", frame(elsewhere, unix.ETH_P_IP, packet(ours4, unix.IPPROTO_TCP, 0, ports(1, 1500))), false},
		{"of a VLAN", frame(mac, unix.ETH_P_8021Q, append([]byte{0, 5, 8, 0}, packet(ours4, unix.IPPROTO_TCP, 0, ports(1, 1500))...)), false},
		{"of nobody", frame(mac, 0x88b5, packet(ours4, unix.IPPROTO_TCP, 0, ports(1, 1500))), false},
	}
	for _, p := range ip {
		typ := uint16(unix.ETH_P_IP)
		if p.pkt[0]>>4 == 6 {
			typ = unix.ETH_P_IPV6
		}
		all = append(all, probe{p.name, frame(mac, typ, p.pkt), p.passes})
	}
	got := heard(t, fd, all, func(pkt []byte) error {
		if pkt[0]>>4 == 4 && len(pkt) == 46 && pkt[45] == 0xff { // the last packet
			pkt = frame(mac, unix.ETH_P_IP, pkt)
		}
		_, err := unix.Write(out, pkt)
		return err
	})
	if diff := cmp.Diff(wanted(all), got); diff != "" {
		t.Error(diff)
	}
}

func TestFilterCooked(t *testing.T) {
	kit.Need(t, "ip")
	a := kit.NewNetns(t, "filter")
	a.Run(t, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
	var tun *os.File
	a.Do(t, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tun = os.NewFile(uintptr(fd), "tun")
		req, err := unix.NewIfreq("tun0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	})
	defer tun.Close()
	a.Run(t, "ip", "link", "set", "tun0", "up")
	var fd int
	a.Do(t, func() (err error) { fd, err = hear("tun0", unix.SOCK_DGRAM); return err })
	defer unix.Close(fd)
	all := probes()
	if diff := cmp.Diff(wanted(all), heard(t, fd, all, func(pkt []byte) error {
		_, err := tun.Write(pkt)
		return err
	})); diff != "" {
		t.Error(diff)
	}
}

// A filter for the maximum number of servers and addresses is within the
// kernel's limit.
func TestFilterLong(t *testing.T) {
	p := Ports{First: 1000, Last: 2000}
	for n := range 64 {
		p.Listen = append(p.Listen, uint16(3000+n))
	}
	var addrs []netip.Addr
	for n := range 16 {
		addrs = append(addrs, netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), netip.AddrFrom16([16]byte{15: byte(n)}))
	}
	filter, err := Filter(true, addrs, p)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := attach(fd, filter); err != nil {
		t.Errorf("%d instructions: %v", len(filter), err)
	}
}
