// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	ip4A = net.IP{192, 0, 2, 1}
	ip4B = net.IP{198, 51, 100, 2}
	ip6A = net.ParseIP("2001:db8::1")
	ip6B = net.ParseIP("2001:db8::2")
)

// frame serializes layers, with lengths and checksums, below an Ethernet header.
func frame(t testing.TB, typ layers.EthernetType, above ...gopacket.SerializableLayer) []byte {
	t.Helper()
	return serialize(t, append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: typ}}, above...)...)
}

func serialize(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var below gopacket.NetworkLayer
	for _, l := range all {
		switch l := l.(type) {
		case *layers.IPv4:
			below = l
		case *layers.IPv6:
			below = l
		case interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}:
			if err := l.SetNetworkLayerForChecksum(below); err != nil {
				t.Fatal(err)
			}
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func ipv4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: ip4A, DstIP: ip4B, Flags: layers.IPv4DontFragment}
}

func ipv6(proto layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: ip6A, DstIP: ip6B}
}

// segment builds a TCP segment with one option, given in hexadecimal.
func segment(t testing.TB, option string, payload int, set func(*layers.TCP)) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 1000, Ack: 2000, ACK: true, Window: 512}
	if option != "" {
		raw, err := hex.DecodeString(option)
		if err != nil {
			t.Fatal(err)
		}
		tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKind(raw[0]), OptionData: raw[2:]}}
	}
	if set != nil {
		set(tcp)
	}
	return frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolTCP), tcp, gopacket.Payload(make([]byte, payload)))
}

func syn(t *layers.TCP)    { t.SYN, t.ACK = true, false }
func synAck(t *layers.TCP) { t.SYN = true }
func rst(t *layers.TCP)    { t.RST = true }

// mptcpOptions lists MPTCP's options in the layout of RFC 8684, section 3, with
// their names in this package, tcpdump and tshark. tcpdump 4.99 does not know
// two of them.
var mptcpOptions = []struct {
	name    string
	option  string
	payload int
	set     func(*layers.TCP)

	want, tcpdump, tshark string
}{
	{"capable SYN", "1e04" + "0181", 0, syn,
		"MP_CAPABLE v1 flags [AH]", "capable v1 csum", "Multipath Capable"},
	{"capable SYN+ACK", "1e0c" + "0121" + "0102030405060708", 0, synAck,
		"MP_CAPABLE v1 flags [CH] key 0x01020304..", "capable v1 {0x102030405060708}", "Multipath Capable"},
	{"capable ACK", "1e14" + "0101" + "0102030405060708" + "1112131415161718", 0, nil,
		"MP_CAPABLE v1 flags [H] keys 0x01020304.. 0x11121314..", "capable v1 {0x102030405060708,0x1112131415161718}", "Multipath Capable"},
	{"capable data", "1e16" + "0101" + "0102030405060708" + "1112131415161718" + "0064", 100, nil,
		"keys 0x01020304.. 0x11121314.. len 100", "capable v1", "Multipath Capable"},
	{"capable data checksum", "1e18" + "0181" + "0102030405060708" + "1112131415161718" + "0064" + "abcd", 100, nil,
		"len 100 csum 0xabcd", "", "Multipath Capable"},
	{"join SYN", "1e0c" + "1102" + "023ebfb7" + "cafebabe", 0, syn,
		"MP_JOIN id 2 token 023ebfb7 nonce 0xcafebabe backup", "join backup id 2 token 0x23ebfb7 nonce 0xcafebabe", "Join Connection"},
	{"join SYN+ACK", "1e10" + "1003" + "0102030405060708" + "cafebabe", 0, synAck,
		"MP_JOIN id 3 hmac 0x01020304.. nonce 0xcafebabe", "join id 3 hmac 0x102030405060708 nonce 0xcafebabe", "Join Connection"},
	{"join ACK", "1e18" + "1000" + "0102030405060708090a0b0c0d0e0f1011121314", 0, nil,
		"MP_JOIN hmac 0x01020304..", "join hmac 0x0102030405060708090a0b0c0d0e0f1011121314", "Join Connection"},
	{"DSS ack 4", "1e08" + "2001" + "00000007", 0, nil,
		"DSS ack 7", "dss ack 7", "Data Sequence Signal"},
	{"DSS ack 8", "1e0c" + "2003" + "0000000100000007", 0, nil,
		"DSS ack 4294967303", "dss ack 4294967303", "Data Sequence Signal"},
	{"DSS all 8", "1e1c" + "200f" + "0000000100000007" + "0000000200000009" + "00000001" + "0064" + "abcd", 100, nil,
		"DSS ack 4294967303 seq 8589934601 subseq 1 len 100 csum 0xabcd", "dss ack 4294967303 seq 8589934601 subseq 1 len 100 csum 0xabcd", "Data Sequence Signal"},
	{"DSS 4, no checksum", "1e12" + "2005" + "00000007" + "00000009" + "00000001" + "0064", 100, nil,
		"DSS ack 7 seq 9 subseq 1 len 100", "dss ack 7 seq 9 subseq 1 len 100", "Data Sequence Signal"},
	{"DSS fin", "1e14" + "2015" + "00000007" + "00000009" + "00000000" + "0001" + "abcd", 0, nil,
		"DSS ack 7 seq 9 subseq 0 len 1 csum 0xabcd DATA_FIN", "dss fin ack 7 seq 9 subseq 0 len 1 csum 0xabcd", "Data Sequence Signal"},
	{"DSS infinite", "1e12" + "2005" + "00000007" + "00000009" + "00000001" + "0000", 100, nil,
		"len 0 (infinite mapping)", "len 0", "Data Sequence Signal"},
	{"add address", "1e10" + "3004" + "c0000207" + "0102030405060708", 0, nil,
		"ADD_ADDR id 4 192.0.2.7 hmac 0x01020304..", "add-addr v1 id 4 192.0.2.7 hmac 0x102030405060708", "Add Address"},
	{"add address, port", "1e12" + "3004" + "c0000207" + "1f90" + "0102030405060708", 0, nil,
		"ADD_ADDR id 4 192.0.2.7 port 8080 hmac 0x01020304..", "add-addr v1 id 4 192.0.2.7:8080 hmac 0x102030405060708", "Add Address"},
	{"add address 6", "1e1c" + "3005" + "20010db8000000000000000000000007" + "0102030405060708", 0, nil,
		"ADD_ADDR id 5 2001:db8::7 hmac 0x01020304..", "add-addr v1 id 5 2001:db8::7 hmac 0x102030405060708", "Add Address"},
	{"add address echo", "1e08" + "3104" + "c0000207", 0, nil,
		"ADD_ADDR id 4 192.0.2.7 echo", "add-addr v1-echo id 4 192.0.2.7", "Add Address"},
	{"remove address", "1e05" + "4002" + "03", 0, nil,
		"REMOVE_ADDR id 2 3", "rem-addr id 2 3", "Remove Address"},
	{"priority", "1e03" + "51", 0, nil,
		"MP_PRIO backup", "prio backup", "Change Subflow Priority"},
	{"no priority", "1e03" + "50", 0, nil,
		"MP_PRIO no backup", "prio", "Change Subflow Priority"},
	{"fail", "1e0c" + "6000" + "0000000200000009", 0, nil,
		"MP_FAIL seq 8589934601", "fail seq 8589934601", "TCP Fallback"},
	{"fast close", "1e0c" + "7000" + "0102030405060708", 0, nil,
		"MP_FASTCLOSE key 0x01020304..", "fast-close key 0x102030405060708", "Fast Close"},
	{"reset", "1e04" + "8106", 0, rst,
		"MP_TCPRST reason 6 (middlebox interference) transient", "", "TCP Reset"},
	{"reset unknown", "1e04" + "80ff", 0, rst,
		"MP_TCPRST reason 255", "", "TCP Reset"},
	{"unknown subtype", "1e05" + "f0" + "0102", 0, nil,
		"subtype 15 0xf00102", "", ""},
	{"length not of its kind", "1e05" + "0001" + "02", 0, nil,
		"malformed 0x1e05000102", "", ""},
}

func TestMPTCPOptions(t *testing.T) {
	for _, o := range mptcpOptions {
		data := segment(t, o.option, o.payload, o.set)
		got := Describe(&Packet{Data: data, Length: len(data)}, LinkTypeEthernet)
		if !strings.Contains(got, o.want) {
			t.Errorf("%s:\n%s\nlacks %q", o.name, got, o.want)
		}
	}
}

// samples returns packets of all supported protocols, by name.
func samples(t testing.TB) (names []string, packets []*Packet, links []LinkType) {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	add := func(name string, lt LinkType, data []byte, snap int) *Packet {
		at = at.Add(1500 * time.Microsecond)
		p := &Packet{Time: at, Data: data, Length: len(data)}
		if snap > 0 {
			p.Data = data[:min(snap, len(data))]
		}
		names, packets, links = append(names, name), append(packets, p), append(links, lt)
		return p
	}
	const ether = LinkTypeEthernet
	tcp := func(set func(*layers.TCP), payload string) []byte {
		s := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 1000, Ack: 2000, ACK: true, Window: 512}
		set(s)
		return frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolTCP), s, gopacket.Payload(payload))
	}
	udp := func(from, to layers.UDPPort, above ...gopacket.SerializableLayer) []byte {
		return frame(t, layers.EthernetTypeIPv4, append([]gopacket.SerializableLayer{ipv4(layers.IPProtocolUDP), &layers.UDP{SrcPort: from, DstPort: to}}, above...)...)
	}
	icmp6 := func(typ uint8, above gopacket.SerializableLayer) []byte {
		return frame(t, layers.EthernetTypeIPv6, ipv6(layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}, above)
	}
	arp := func(op uint16) []byte {
		return frame(t, layers.EthernetTypeARP, &layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: op, SourceHwAddress: macA, SourceProtAddress: ip4A, DstHwAddress: macB, DstProtAddress: ip4B})
	}
	add("arp request", ether, arp(layers.ARPRequest), 0)
	add("arp reply", ether, arp(layers.ARPReply), 0)
	add("tcp syn", ether, tcp(func(s *layers.TCP) {
		syn(s)
		s.Options = []layers.TCPOption{{OptionType: 2, OptionData: []byte{5, 0xb4}}, {OptionType: 4}, {OptionType: 8, OptionData: []byte{0, 0, 0, 1, 0, 0, 0, 2}}, {OptionType: 1}, {OptionType: 3, OptionData: []byte{7}}}
	}, ""), 0).Dir = Out
	owned := add("tcp data", ether, tcp(func(s *layers.TCP) { s.Seq, s.PSH = 1001, true }, "GET / HTTP/1.0\r\n\r\n"), 0)
	owned.Owner = &Owner{PID: 2421, Comm: "curl", Inode: 7, FDs: []int{5}}
	owned.Comment, owned.Dir = "mptcp token 023ebfb7", Out
	add("tcp from the middle", ether, frame(t, layers.EthernetTypeIPv6, ipv6(layers.IPProtocolTCP), &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 7000, Ack: 9000, ACK: true, FIN: true}, gopacket.Payload("x")), 0)
	add("tcp sack", ether, tcp(func(s *layers.TCP) {
		s.Seq = 1019
		s.Options = []layers.TCPOption{{OptionType: 5, OptionData: []byte{0, 0, 0, 1, 0, 0, 0, 9}}}
	}, ""), 0).Dir = In
	add("tcp payload cut", ether, tcp(func(*layers.TCP) {}, strings.Repeat("x", 500)), 128)
	add("tcp options cut", ether, segment(t, mptcpOptions[2].option, 0, nil), 60)
	add("tcp header cut", ether, tcp(func(*layers.TCP) {}, ""), 40)
	add("ip header cut", ether, tcp(func(*layers.TCP) {}, ""), 24)
	add("udp", ether, udp(5000, 6000, gopacket.Payload("hello")), 0)
	add("udp 6", ether, frame(t, layers.EthernetTypeIPv6, ipv6(layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, gopacket.Payload("hello")), 0)
	add("dns query", ether, udp(5000, 53, &layers.DNS{ID: 77, RD: true, Questions: []layers.DNSQuestion{{Name: []byte("example.com"), Type: layers.DNSTypeA, Class: layers.DNSClassIN}}}), 0)
	reply := &layers.DNS{ID: 77, QR: true, Questions: []layers.DNSQuestion{{Name: []byte("example.com"), Type: layers.DNSTypeA, Class: layers.DNSClassIN}}}
	for i := range 6 {
		reply.Answers = append(reply.Answers, layers.DNSResourceRecord{Name: []byte("example.com"), Type: layers.DNSTypeA, Class: layers.DNSClassIN, IP: net.IP{192, 0, 2, byte(i)}})
	}
	add("dns answer", ether, udp(53, 5000, reply), 0)
	add("dns answer cut", ether, udp(53, 5000, reply), 90)
	add("dns refusal", ether, udp(53, 5000, &layers.DNS{ID: 78, QR: true, ResponseCode: layers.DNSResponseCodeNXDomain, Questions: []layers.DNSQuestion{{Name: []byte("no\x1b[31m.example"), Type: layers.DNSTypeAAAA, Class: layers.DNSClassIN}}}), 0)
	add("dhcp", ether, udp(68, 67, &layers.DHCPv4{Operation: layers.DHCPOpRequest, HardwareType: layers.LinkTypeEthernet, ClientHWAddr: macA, Xid: 0x1234,
		Options: layers.DHCPOptions{layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(layers.DHCPMsgTypeRequest)}), layers.NewDHCPOption(layers.DHCPOptRequestIP, ip4A)}}), 0)
	add("ping", ether, frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 3, Seq: 4}, gopacket.Payload("ping")), 0)
	quoted := serialize(t, ipv4(layers.IPProtocolUDP), &layers.UDP{SrcPort: 5000, DstPort: 53})
	add("icmp port", ether, frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, gopacket.Payload(quoted)), 0)
	add("icmp mtu", ether, frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1280}, gopacket.Payload(quoted)), 0)
	add("ping 6", ether, icmp6(layers.ICMPv6TypeEchoRequest, &layers.ICMPv6Echo{Identifier: 3, SeqNumber: 4}), 0)
	add("neighbour solicitation", ether, icmp6(layers.ICMPv6TypeNeighborSolicitation, &layers.ICMPv6NeighborSolicitation{TargetAddress: ip6A, Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: macA}}}), 0)
	add("neighbour advertisement", ether, icmp6(layers.ICMPv6TypeNeighborAdvertisement, &layers.ICMPv6NeighborAdvertisement{TargetAddress: ip6A}), 0)
	prefix := append([]byte{64, 0xc0, 0, 0, 0, 60, 0, 0, 0, 30, 0, 0, 0, 0}, ip6A...)
	add("router advertisement", ether, icmp6(layers.ICMPv6TypeRouterAdvertisement, &layers.ICMPv6RouterAdvertisement{HopLimit: 64, Flags: 0x40, RouterLifetime: 1800,
		Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptPrefixInfo, Data: prefix}, {Type: layers.ICMPv6OptMTU, Data: []byte{0, 0, 0, 0, 5, 0xdc}}}}), 0)
	quoted6 := append([]byte{0, 0, 5, 0}, serialize(t, ipv6(layers.IPProtocolUDP), &layers.UDP{SrcPort: 5000, DstPort: 53})...)
	add("too big 6", ether, icmp6(layers.ICMPv6TypePacketTooBig, gopacket.Payload(quoted6)), 0)
	fragment := ipv4(layers.IPProtocolUDP)
	fragment.FragOffset, fragment.Flags = 185, layers.IPv4MoreFragments
	add("fragment", ether, frame(t, layers.EthernetTypeIPv4, fragment, gopacket.Payload("rest")), 0)
	add("vlan", ether, frame(t, layers.EthernetTypeDot1Q, &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}, ipv4(layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}), 0)
	add("igmp", ether, frame(t, layers.EthernetTypeIPv4, ipv4(layers.IPProtocolIGMP), gopacket.Payload([]byte{0x16, 0, 0, 0, 224, 0, 0, 5})), 0)
	add("unknown ethertype", ether, frame(t, 0x88b5, gopacket.Payload("local experiment")), 0)
	add("raw ip", LinkTypeRaw, serialize(t, ipv4(layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, gopacket.Payload("hello")), 0)
	add("raw ip 6", LinkTypeRaw, serialize(t, ipv6(layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, gopacket.Payload("hello")), 0)
	add("nothing", ether, nil, 0)
	add("ethernet cut", ether, tcp(func(*layers.TCP) {}, ""), 10)
	return names, packets, links
}

// TestLines compares every form of a line with a golden file.
func TestLines(t *testing.T) {
	names, packets, links := samples(t)
	var b strings.Builder
	for _, s := range []struct {
		title string
		style Style
	}{
		{"as it is", Style{Stamp: StampEpoch, Interfaces: true}},
		{"-e -v -S -ttttt, instances", Style{Stamp: StampSince, Interfaces: true, Instances: true, Link: true, Verbose: true, Absolute: true}},
		{"-ttt -X", Style{Stamp: StampDelta, Dump: DumpHex}},
		{"-t -A", Style{Stamp: StampNone, Dump: DumpText}},
	} {
		fmt.Fprintf(&b, "== %s\n", s.title)
		d := NewDescriber(s.style)
		for i, p := range packets {
			if s.style.Dump != DumpNone && i > 4 {
				break
			}
			l := d.Line(p, &Interface{Instance: "web", Name: "eth0", LinkType: links[i]})
			fmt.Fprintf(&b, "%-22s %s\n", names[i], l.String())
		}
	}
	golden(t, "lines.golden", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update writes it:\n%s", path, diff)
	}
}

// TestManyFlows: the memory for flows is limited.
func TestManyFlows(t *testing.T) {
	d := NewDescriber(Style{})
	for i := range maxFlows * 3 {
		data := segment(t, "", 0, func(s *layers.TCP) { s.SrcPort, s.DstPort = layers.TCPPort(i), layers.TCPPort(i>>16+1) })
		d.Line(&Packet{Data: data, Length: len(data)}, &Interface{LinkType: LinkTypeEthernet})
	}
	if len(d.flows) > maxFlows {
		t.Errorf("%d flows are remembered, at most %d should be", len(d.flows), maxFlows)
	}
}

// FuzzDescribe: for any bytes, the result is a line of printable text.
func FuzzDescribe(f *testing.F) {
	_, packets, links := samples(f)
	for i, p := range packets {
		f.Add(p.Data, p.Length, int(links[i]))
	}
	for _, o := range mptcpOptions {
		data := segment(f, o.option, o.payload, o.set)
		f.Add(data, len(data), int(LinkTypeEthernet))
	}
	d := NewDescriber(Style{Stamp: StampNone, Interfaces: true, Link: true, Verbose: true, Dump: DumpHexLink})
	f.Fuzz(func(t *testing.T, data []byte, length, lt int) {
		if lt != int(LinkTypeEthernet) {
			lt = int(LinkTypeRaw)
		}
		length = max(length, len(data))
		line := d.Line(&Packet{Data: data, Length: length}, &Interface{Name: "eth0", LinkType: LinkType(lt)})
		if line.Text == "" || strings.ContainsFunc(line.Text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q", line.Text)
		}
	})
}
