// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/test/kit"
)

// Addresses of the peer, which is the test itself, and of the stack.
var (
	peerMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	stackMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	peerIP   = net.IPv4(10, 98, 0, 1)
	stackIP  = net.IPv4(10, 98, 0, 2)
)

// framePeer exchanges single frames with a stack, so that it can send wrong ones.
type framePeer struct {
	*kit.Talker
	end  *os.File
	segs chan *layers.TCP // TCP segments of the stack
	port layers.TCPPort   // source port of the latest connection
	seen uint64           // number of the next record of drops that was not checked
}

// newFramePeer starts a talker whose only interface ends in the test.
func newFramePeer(t *testing.T, flags ...string) *framePeer {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	name := kit.NewName()
	args := slices.Concat([]string{"--name", name, "--stack", "vanilla", "--if", fmt.Sprintf("fd:3,ip=%v/24,mac=%v", stackIP, stackMAC)},
		flags, []string{"--", "/usr/bin/python3", "-uc", kit.TalkerProgram})
	cmd := kit.Lklrun(args...)
	cmd.ExtraFiles = []*os.File{theirs}
	p := &framePeer{end: ours, segs: make(chan *layers.TCP, 256), port: 5000}
	p.Talker = kit.StartTalker(t, name, cmd)
	theirs.Close()
	t.Cleanup(func() { ours.Close() })
	go p.receive()
	p.Say("0")
	p.Say("exec('import struct, array, ctypes')")
	return p
}

// receive answers ARP for the peer's address, and passes on TCP segments. It ends when
// the run does.
func (p *framePeer) receive() {
	buf := make([]byte, 1<<16)
	for {
		n, err := p.end.Read(buf)
		if err != nil || n == 0 {
			return
		}
		pkt := gopacket.NewPacket(slices.Clone(buf[:n]), layers.LayerTypeEthernet, gopacket.Default)
		if arp, ok := pkt.Layer(layers.LayerTypeARP).(*layers.ARP); ok && net.IP(arp.DstProtAddress).Equal(peerIP) && arp.Operation == layers.ARPRequest {
			p.write(&layers.Ethernet{SrcMAC: peerMAC, DstMAC: arp.SourceHwAddress, EthernetType: layers.EthernetTypeARP},
				&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPReply,
					SourceHwAddress: peerMAC, SourceProtAddress: peerIP.To4(), DstHwAddress: arp.SourceHwAddress, DstProtAddress: arp.SourceProtAddress})
		}
		if tcp, ok := pkt.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
			select {
			case p.segs <- tcp:
			default: // nobody waits for them
			}
		}
	}
}

// write sends a frame. Lengths and checksums are right.
func (p *framePeer) write(parts ...gopacket.SerializableLayer) { p.mangle(nil, parts...) }

// mangle sends a frame after change has made it wrong.
func (p *framePeer) mangle(change func([]byte), parts ...gopacket.SerializableLayer) {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		p.T.Error(err)
		return
	}
	frame := b.Bytes()
	if change != nil {
		change(frame)
	}
	if _, err := p.end.Write(frame); err != nil {
		p.T.Logf("sending a frame: %v", err)
	}
}

func ether() *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: peerMAC, DstMAC: stackMAC, EthernetType: layers.EthernetTypeIPv4}
}

// datagram returns a datagram in a packet. It tests the packet, not the datagram.
func datagram(ip *layers.IPv4) []gopacket.SerializableLayer {
	u := &layers.UDP{SrcPort: 4000, DstPort: 53}
	_ = u.SetNetworkLayerForChecksum(ip)
	return []gopacket.SerializableLayer{ip, u, gopacket.Payload(make([]byte, 64))}
}

func ipv4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: peerIP, DstIP: stackIP}
}

// udp sends a datagram to a port of the stack.
func (p *framePeer) udp(port int, change func([]byte), size int) {
	ip := ipv4(layers.IPProtocolUDP)
	u := &layers.UDP{SrcPort: 4000, DstPort: layers.UDPPort(port)}
	_ = u.SetNetworkLayerForChecksum(ip)
	p.mangle(change, ether(), ip, u, gopacket.Payload(make([]byte, size)))
}

// tcp sends a segment to a port of the stack.
func (p *framePeer) tcp(seg layers.TCP, change func([]byte), data string) {
	ip := ipv4(layers.IPProtocolTCP)
	_ = seg.SetNetworkLayerForChecksum(ip)
	seg.Window = 65535
	p.mangle(change, ether(), ip, &seg, gopacket.Payload(data))
}

// segment waits for a segment of the stack for a port of the peer.
func (p *framePeer) segment(port layers.TCPPort, is func(*layers.TCP) bool) *layers.TCP {
	p.T.Helper()
	limit := time.After(kit.Limit)
	for {
		select {
		case s := <-p.segs:
			if s.DstPort == port && is(s) {
				return s
			}
		case <-limit:
			p.T.Fatal("the stack sent no such segment")
		}
	}
}

// connection is a TCP connection of the peer to port 80 of the stack; next is what a
// further segment of the peer contains.
type connection struct {
	p    *framePeer
	next layers.TCP
}

// connect opens a connection. The target keeps its end as keep["c"], and those of earlier
// connections elsewhere.
func (p *framePeer) connect() *connection {
	p.T.Helper()
	p.port++
	c := &connection{p, layers.TCP{SrcPort: p.port, DstPort: 80, Seq: 1000, SYN: true, Options: []layers.TCPOption{
		{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2}}}}
	p.handshake(c)
	p.tcp(c.next, nil, "")
	p.Say(`keep.__setitem__(%d, keep.get("c"))`, p.port)
	if got := p.Say(`keep.__setitem__("c", keep["l"].accept()[0])`); got != "None" {
		p.T.Fatalf("accept: %s", got)
	}
	return c
}

// handshake sends the SYN of a connection, and waits for the SYN-ACK.
func (p *framePeer) handshake(c *connection) {
	p.T.Helper()
	p.tcp(c.next, nil, "")
	synack := p.segment(p.port, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	c.next.Seq, c.next.SYN, c.next.ACK, c.next.Ack, c.next.Options = 1001, false, true, synack.Seq+1, nil
}

// send sends data and waits for its acknowledgement.
func (c *connection) send(data string) {
	c.p.T.Helper()
	c.p.tcp(c.next, nil, data)
	c.next.Seq += uint32(len(data))
	c.p.segment(c.next.SrcPort, func(s *layers.TCP) bool { return s.Ack == c.next.Seq })
}

// with returns the next segment with a change.
func (c *connection) with(change func(*layers.TCP)) layers.TCP {
	seg := c.next
	change(&seg)
	return seg
}

// forward sends a packet for the stack to forward to 192.0.2.1.
func (p *framePeer) forward(ttl uint8, size int, flags layers.IPv4Flag) {
	ip := ipv4(layers.IPProtocolUDP)
	ip.DstIP, ip.TTL, ip.Flags = net.IPv4(192, 0, 2, 1), ttl, flags
	u := &layers.UDP{SrcPort: 4000, DstPort: 53}
	_ = u.SetNetworkLayerForChecksum(ip)
	p.write(ether(), ip, u, gopacket.Payload(make([]byte, size)))
}

// overflow opens connections to a listener that never accepts one, in groups that are
// complete at the same time.
func (p *framePeer) overflow(port layers.TCPPort, backlog int, groups ...int) {
	p.T.Helper()
	p.Say(`keep.__setitem__("b%d", socket.create_server(("", %d), backlog=%d))`, port, port, backlog)
	for _, n := range groups {
		var all []*connection
		for range n {
			p.port++
			c := &connection{p, layers.TCP{SrcPort: p.port, DstPort: port, Seq: 1000, SYN: true}}
			p.handshake(c)
			all = append(all, c)
		}
		for _, c := range all {
			p.tcp(c.next, nil, "")
		}
	}
}

// fill sends data on a connection until the receive window is zero.
func (p *framePeer) fill(c *connection) {
	p.T.Helper()
	data := strings.Repeat("x", 1000)
	for window := 1; window > 0; {
		// Several, because the acknowledgement of a single one is delayed.
		for range min(max(window/len(data)/2, 1), 16) {
			p.tcp(c.next, nil, data)
			c.next.Seq += uint32(len(data))
		}
		window = int(p.segment(c.next.SrcPort, func(s *layers.TCP) bool { return s.Ack == c.next.Seq }).Window)
	}
}

// fresh returns the records that were not checked before.
func (p *framePeer) fresh() (all []drops.Record) {
	p.T.Helper()
	for _, verb := range []string{"drops", "resets"} {
		var some []drops.Record
		if err := json.Unmarshal([]byte(kit.Lklctl(p.T, "-n", p.Name, "-o", "json", verb)), &some); err != nil {
			p.T.Fatal(err)
		}
		for _, r := range some {
			if r.Number >= p.seen {
				all = append(all, r)
			}
		}
	}
	return all
}

// dropped waits for a drop.
func (p *framePeer) dropped(reason string) {
	p.T.Helper()
	kit.WaitFor(p.T, reason, kit.Limit, func() bool {
		return slices.ContainsFunc(p.fresh(), func(r drops.Record) bool { return r.Reason == reason })
	})
}

// netlink sends messages to the stack's kernel, in Python. Under preload, the program itself
// has to do so, because no other program can use its stack.
const netlink = `
def attr(kind, data): return struct.pack('HH', 4 + len(data), kind) + data + bytes(-len(data) % 4)
def msg(kind, flags, data): return struct.pack('IHHII', 16 + len(data), kind, 5 | flags, 1, 0) + data
def nf(subsystem=0): return struct.pack('!BBH', 2, 0, subsystem)
def talk(protocol, *messages):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    s.settimeout(10)
    s.send(b''.join(messages))
    while True:
        answer = s.recv(65536)
        while answer:
            size, kind, flags, seq, pid, error = struct.unpack('IHHIIi', answer[:20])
            if kind == 2 and error: raise OSError(-error, 'netlink')
            if kind == 2: return
            answer = answer[size + 3 & ~3:]
`

// causes are ways to lose a packet, or to have a connection reset, each with the records
// that it must leave: KIND REASON, sorted. Under supervise, lklhost closes a socket with
// unread data by aborting its connection.
var causes = []struct {
	name    string
	do      func(*framePeer)
	want    []string
	preload []string // if preload differs
}{
	{"a closed UDP port", func(p *framePeer) { p.udp(9, nil, 8) }, []string{"drop NO_SOCKET"}, nil},
	{"a closed UDP port, and a program that does not read the error queue (IP_RECVERR)", func(p *framePeer) {
		p.Say(`exec("u=socket.socket(2, 2); u.setsockopt(0, 11, 1); u.connect(('127.0.0.1', 9)); u.send(b'data'); u.close()")`)
	}, []string{"drop NO_SOCKET"}, nil},
	{"a closed TCP port", func(p *framePeer) {
		p.tcp(layers.TCP{SrcPort: 4000, DstPort: 9, Seq: 1, SYN: true}, nil, "")
	}, []string{"drop NO_SOCKET", "reset-sent NO_SOCKET"}, nil},
	{"a wrong UDP checksum", func(p *framePeer) { p.udp(53, func(b []byte) { b[40] ^= 0xff }, 8) }, []string{"drop UDP_CSUM"}, nil},
	{"a wrong TCP checksum", func(p *framePeer) {
		p.tcp(layers.TCP{SrcPort: 4000, DstPort: 80, Seq: 1, SYN: true}, func(b []byte) { b[50] ^= 0xff }, "")
	}, []string{"drop TCP_CSUM"}, nil},
	{"a wrong IP checksum", func(p *framePeer) { p.udp(53, func(b []byte) { b[24] ^= 0xff }, 8) }, []string{"drop IP_CSUM"}, nil},
	{"a wrong ICMP checksum", func(p *framePeer) {
		p.mangle(func(b []byte) { b[36] ^= 0xff }, ether(), ipv4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, gopacket.Payload("12345678"))
	}, []string{"drop ICMP_CSUM"}, nil},
	{"a short IP header", func(p *framePeer) { p.udp(53, func(b []byte) { b[14] = 0x44 }, 8) }, []string{"drop IP_INHDR"}, nil},
	{"a truncated packet", func(p *framePeer) {
		p.udp(53, func(b []byte) { b[16], b[24] = 0x40, b[24]-0x40 }, 8)
	}, []string{"drop PKT_TOO_SMALL"}, nil},
	{"another machine's MAC address", func(p *framePeer) {
		e := ether()
		e.DstMAC = net.HardwareAddr{2, 0, 0, 0, 0, 77}
		p.write(append([]gopacket.SerializableLayer{e}, datagram(ipv4(layers.IPProtocolUDP))...)...)
	}, []string{"drop OTHERHOST"}, nil},
	{"an unknown IP protocol", func(p *framePeer) { p.write(ether(), ipv4(200), gopacket.Payload("data")) }, []string{"drop IP_NOPROTO"}, nil},
	{"an address of another host", func(p *framePeer) {
		ip := ipv4(layers.IPProtocolUDP)
		ip.DstIP = net.IPv4(10, 98, 0, 77)
		p.write(append([]gopacket.SerializableLayer{ether()}, datagram(ip)...)...)
	}, []string{"drop IP_INADDRERRORS"}, nil},
	{"the reverse path filter", func(p *framePeer) {
		kit.Lklctl(p.T, "-n", p.Name, "sysctl", "-w", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
		ip := ipv4(layers.IPProtocolUDP)
		ip.SrcIP = net.IPv4(172, 30, 0, 1)
		p.write(append([]gopacket.SerializableLayer{ether()}, datagram(ip)...)...)
	}, []string{"drop IP_RPFILTER"}, nil},
	{"a socket filter", func(p *framePeer) {
		p.Say(`keep.__setitem__("f", socket.socket(socket.AF_INET, socket.SOCK_DGRAM))`)
		p.Say(`exec("s=keep['f']; s.bind(('', 7)); b=ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0)); s.setsockopt(1, 26, struct.pack('HxxxxxxP', 1, ctypes.addressof(b)))")`)
		p.udp(7, nil, 8)
	}, []string{"drop SOCKET_FILTER"}, nil},
	{"a next hop that does not answer", func(p *framePeer) {
		p.Say(`socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.98.0.9", 9))`)
	}, []string{"drop NEIGH_FAILED"}, nil},
	{"loss on the path", func(p *framePeer) {
		kit.Lklctl(p.T, "-n", p.Name, "path", "eth0", "loss", "100%")
		p.Say(`socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.98.0.1", 9))`)
	}, []string{"drop QDISC_DROP"}, nil},
	{"a missing fragment", func(p *framePeer) {
		kit.Lklctl(p.T, "-n", p.Name, "path", "eth0", "clear")
		kit.Lklctl(p.T, "-n", p.Name, "sysctl", "-w", "net.ipv4.ipfrag_time=1")
		ip := ipv4(layers.IPProtocolUDP)
		ip.Flags, ip.Id = layers.IPv4MoreFragments, 7
		p.write(append([]gopacket.SerializableLayer{ether()}, datagram(ip)...)...)
	}, []string{"drop FRAG_REASM_TIMEOUT"}, nil},
	{"old data", func(p *framePeer) {
		c := p.connect()
		old := c.next
		c.send("hello")
		p.tcp(old, nil, "hello")
	}, []string{"drop TCP_OLD_DATA"}, nil},
	{"data outside the window", func(p *framePeer) {
		c := p.connect()
		p.tcp(c.with(func(s *layers.TCP) { s.Seq += 1 << 24 }), nil, "hello")
	}, []string{"drop TCP_INVALID_SEQUENCE"}, nil},
	{"an acknowledgement of data that was not sent", func(p *framePeer) {
		c := p.connect()
		p.tcp(c.with(func(s *layers.TCP) { s.Ack += 1000 }), nil, "hello")
	}, []string{"drop TCP_ACK_UNSENT_DATA"}, nil},
	{"a segment without flags", func(p *framePeer) {
		c := p.connect()
		p.tcp(c.with(func(s *layers.TCP) { s.ACK = false }), nil, "hello")
	}, []string{"drop TCP_FLAGS"}, nil},
	{"a reset of the peer", func(p *framePeer) {
		c := p.connect()
		p.tcp(c.with(func(s *layers.TCP) { s.RST = true }), nil, "")
	}, []string{"reset-received PEER"}, nil},
	{"a SYN on an established connection", func(p *framePeer) {
		c := p.connect()
		p.tcp(c.with(func(s *layers.TCP) { s.SYN, s.ACK = true, false }), nil, "")
	}, []string{"drop TCP_INVALID_SYN"}, nil},
	{"a close with unread data", func(p *framePeer) {
		p.connect().send("hello")
		p.Say(`keep["c"].recv(5, socket.MSG_PEEK)`) // the program has it, and does not read it
		p.Say(`keep.pop("c").close()`)
	}, []string{"reset-sent TCP_STATE"}, []string{"reset-sent TCP_ABORT_ON_CLOSE"}},
	{"SO_LINGER 0", func(p *framePeer) {
		p.connect()
		p.Say(`exec("c=keep.pop('c'); c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.close()")`)
	}, []string{"reset-sent TCP_STATE"}, nil},
	{"a TTL below the minimum of the socket", func(p *framePeer) {
		c := p.connect()
		p.Say(`keep["c"].setsockopt(0, 21, 255)`) // IP_MINTTL
		p.tcp(c.next, nil, "hello")
	}, []string{"drop TCP_MINTTL"}, nil},
	{"data for a full receive window", func(p *framePeer) {
		c := p.connect()
		p.fill(c)
		p.tcp(c.next, nil, "hello")
	}, []string{"drop TCP_ZEROWINDOW"}, nil},
	{"a full socket buffer", func(p *framePeer) {
		p.Say(`exec("s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(1, 8, 2304); s.bind(('', 6)); keep['u']=s")`)
		for range 2000 {
			p.udp(6, nil, 1400)
		}
	}, []string{"drop SOCKET_RCVBUFF"}, nil},
	{"a full queue of a listener, with SYN cookies", func(p *framePeer) { p.overflow(81, 0, 4) }, []string{"drop NO_SOCKET"}, nil},
	{"a full queue of a listener", func(p *framePeer) {
		kit.Lklctl(p.T, "-n", p.Name, "sysctl", "-w", "net.ipv4.tcp_syncookies=0")
		p.overflow(82, 2, 2, 2)
	}, []string{"drop LISTEN_OVERFLOW"}, nil},
	{"a full queue of a path", func(p *framePeer) {
		kit.Lklctl(p.T, "-n", p.Name, "path", "eth0", "rate", "1kbit", "limit", "2")
		p.Say(`exec("s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor i in range(50): s.sendto(bytes(1000), ('10.98.0.1', 9))")`)
		p.dropped("QDISC_DROP")
		kit.Lklctl(p.T, "-n", p.Name, "path", "eth0", "clear") // it also drops what waits
	}, []string{"drop NOT_SPECIFIED", "drop QDISC_DROP"}, nil},
	{"a full queue for the next hop", func(p *framePeer) {
		kit.Lklctl(p.T, "-n", p.Name, "sysctl", "-w", "net.ipv4.neigh.eth0.unres_qlen_bytes=0")
		p.Say(`exec("s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor i in range(2): s.sendto(b'x', ('10.98.0.10', 9))")`)
	}, []string{"drop NEIGH_FAILED", "drop NEIGH_QUEUEFULL"}, nil},
	{"netfilter", func(p *framePeer) {
		p.Say("exec(%q)", netlink+`
batch = lambda *m: talk(12, msg(16, 0, nf(10)), *m, msg(17, 0, nf(10)))
hook = attr(4, attr(1, struct.pack('!I', 1)) + attr(2, bytes(4)))
batch(msg(0xa00, 0x400, nf() + attr(1, b't\0')),
      msg(0xa03, 0x400, nf() + attr(1, b't\0') + attr(3, b'in\0') + hook + attr(5, bytes(4)) + attr(7, b'filter\0')))
`)
		p.udp(53, nil, 8)
		p.dropped("NETFILTER_DROP") // else the stack may read the packet when the chain is gone
		p.Say("exec(%q)", "batch(msg(0xa02, 0, nf() + attr(1, b't\\0')))")
	}, []string{"drop NETFILTER_DROP"}, nil},
	{"no route for a packet to forward", func(p *framePeer) {
		kit.Lklctl(p.T, "-n", p.Name, "sysctl", "-w", "net.ipv4.ip_forward=1")
		p.forward(64, 64, 0)
	}, []string{"drop IP_INNOROUTES"}, nil},
	{"an expired TTL", func(p *framePeer) {
		p.Say("exec(%q)", netlink+`
mtu = attr(8, attr(1, struct.pack('I', 1 << 2)) + attr(2, struct.pack('I', 576)))
talk(0, msg(24, 0x400, struct.pack('8BI', 2, 24, 0, 0, 254, 3, 0, 1, 0) + attr(1, bytes((192, 0, 2, 0))) + attr(5, bytes((10, 98, 0, 1))) + mtu))
`)
		p.forward(1, 64, 0)
	}, []string{"drop IP_INHDR"}, nil},
	{"a packet larger than the MTU", func(p *framePeer) {
		p.forward(64, 1000, layers.IPv4DontFragment)
	}, []string{"drop PKT_TOO_BIG"}, nil},
	{"an Ethernet protocol that nobody handles", func(p *framePeer) {
		e := ether()
		e.EthernetType = 0x88b5
		p.write(e, gopacket.Payload(make([]byte, 64)))
	}, []string{"drop UNHANDLED_PROTO"}, nil},
	{"a closed port behind the noise of multicast", func(p *framePeer) {
		send := func(to net.HardwareAddr, kind layers.EthernetType, parts ...gopacket.SerializableLayer) {
			p.write(append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: peerMAC, DstMAC: to, EthernetType: kind}}, parts...)...)
		}
		for n := range 2000 { // more than the records that the stack keeps
			group := net.IP{0: 0xff, 1: []byte{2, 5, 14}[n%3], 15: []byte{1, 2, 12, 0xfb}[n%4]} // all hosts, all routers, SSDP, mDNS
			ip := &layers.IPv6{Version: 6, HopLimit: 1, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP("fe80::1"), DstIP: group}
			u := &layers.UDP{SrcPort: 5353, DstPort: 5353}
			_ = u.SetNetworkLayerForChecksum(ip)
			send(net.HardwareAddr{0x33, 0x33, 0, 0, 0, group[15]}, layers.EthernetTypeIPv6, ip, u, gopacket.Payload("noise"))
			for to, mac := range map[string]string{"239.255.255.250": "01:00:5e:7f:ff:fa", "10.98.0.255": "ff:ff:ff:ff:ff:ff", "192.0.2.255": "ff:ff:ff:ff:ff:ff"} {
				hw, err := net.ParseMAC(mac)
				kit.Must(p.T, err)
				ip := ipv4(layers.IPProtocolUDP)
				ip.DstIP = net.ParseIP(to)
				send(hw, layers.EthernetTypeIPv4, datagram(ip)...)
			}
			send(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 14}, layers.EthernetTypeLinkLayerDiscovery, gopacket.Payload(make([]byte, 50)))
		}
		p.udp(9, nil, 8)
	}, []string{"drop NO_SOCKET"}, nil},
	{"a closed port before a storm of frames for other machines", func(p *framePeer) {
		total := func() uint64 { // also of the web page
			var top live.Snapshot
			kit.Must(p.T, json.Unmarshal([]byte(kit.Lklctl(p.T, "-n", p.Name, "top", "-o", "json", "-c", "1")), &top))
			return top.Totals.Drops.N
		}
		before := total()
		p.udp(9, nil, 8)
		for n := range 2000 { // more than the records that the stack keeps
			e := ether()
			e.DstMAC = net.HardwareAddr{2, 0, 0, 0, 1, byte(n)}
			p.write(append([]gopacket.SerializableLayer{e}, datagram(ipv4(layers.IPProtocolUDP))...)...)
			e.EthernetType = 0x88b5
			p.write(e, gopacket.Payload(make([]byte, 64)))
		}
		kit.WaitFor(p.T, "the storm's end", kit.Limit, func() bool {
			return regexp.MustCompile(`\s4,?00\d\b`).MatchString(kit.Lklctl(p.T, "-n", p.Name, "counters", "drops.OTHERHOST"))
		})
		if n := total() - before; n > 100 {
			p.T.Errorf("top counts %d drops", n)
		}
	}, []string{"drop NO_SOCKET", "drop OTHERHOST"}, nil},
	{"no answer to keepalive probes", func(p *framePeer) {
		p.connect()
		p.Say(`exec("c=keep['c']; c.setsockopt(6, 4, 1); c.setsockopt(6, 5, 1); c.setsockopt(6, 6, 1); c.setsockopt(1, 9, 1)")`)
	}, []string{"reset-sent TCP_KEEPALIVE_TIMEOUT"}, nil},
}

// TestDrops checks that drops and resets name the cause of each lost packet and of each
// reset, and nothing while all is well.
func TestDrops(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := newFramePeer(t, "--engine", engine)
			p.Say(`keep.__setitem__("l", socket.create_server(("", 80)))`)
			c := p.connect()
			c.send("hello")
			p.Say(`exec("c=keep['c']; c.recv(5); c.close()")`)
			p.segment(c.next.SrcPort, func(s *layers.TCP) bool { return s.FIN })
			if all := p.fresh(); len(all) > 0 {
				t.Errorf("a healthy connection left %+v", all)
			}
			for _, cause := range causes {
				t.Run(strings.ReplaceAll(cause.name, " ", "_"), func(t *testing.T) {
					p.T = t
					want := cause.want
					if engine == "preload" && cause.preload != nil {
						want = cause.preload
					}
					cause.do(p)
					var got []string
					var all []drops.Record
					kit.Within(kit.Limit, func() bool {
						got, all = nil, p.fresh()
						for _, r := range all {
							got = append(got, r.Kind+" "+r.Reason)
						}
						slices.Sort(got)
						return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) })
					})
					if !slices.Equal(slices.Compact(got), want) {
						t.Errorf("got %q, want %q: %+v", got, want, all)
					}
					for _, r := range all {
						p.seen = max(p.seen, r.Number+1)
					}
				})
			}
			p.T = t
			if r := p.End(); r.Status != 0 {
				t.Error(r)
			}
		})
	}
}

//go:embed testdata/ordinary.py
var ordinaryProgram string

// TestDropsOrdinary checks that connections that end in an ordinary way leave no drops: 10,000 over
// a wire and inside a stack, on two stacks, and 5,000 with a second wire, most of which end before
// MPTCP uses it. One in ten ends with a reset of the client, one with a reset of the server.
func TestDropsOrdinary(t *testing.T) {
	const count = 1250
	for name, tt := range map[string]struct{ stack, second string }{
		"vanilla": {stack: "vanilla"}, "default": {stack: "mptcp"}, "two paths": {stack: "mptcp", second: kit.NewName()},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			wire := kit.NewName()
			end := func(n int, engine string) *kit.Talker {
				// Beyond its limit, a stack forgets connections in TIME-WAIT whose other end may still exist.
				flags := []string{"--sysctl", "net.ipv4.tcp_max_tw_buckets=16384", "--stack", tt.stack, "--engine", engine, "--if", fmt.Sprintf("wire:%s,ip=10.97.0.%d/24,ip6=fd97::%d/64", wire, n, n)}
				if tt.second != "" {
					flags = append(flags, "--if", fmt.Sprintf("wire:%s,ip=10.98.0.%d/24,gw=10.98.0.%d", tt.second, n, 3-n))
				}
				k := newEnd(t, flags...)
				k.Say("exec(%s)", pythonString(ordinaryProgram))
				k.Say(`serve(socket.AF_INET, "", 80)`)
				k.Say(`serve(socket.AF_INET6, "::", 81)`)
				return k
			}
			client, server := end(1, "supervise"), end(2, "preload")
			for to, k := range map[string]*kit.Talker{`"10.97.0.2", 80`: client, `"fd97::2", 81`: client, `"127.0.0.1", 80`: client, `"::1", 81`: server} {
				if got := k.Say("visit(%s, %d)", to, count); got != strconv.Itoa(count) {
					t.Errorf("connections to %s: %s", to, got)
				}
			}
			for _, k := range []*kit.Talker{client, server} {
				if got := kit.Lklctl(t, "-n", k.Name, "drops"); strings.Contains(got, ":") {
					t.Errorf("drops of %s: %s", k.Name, got)
				}
				var top live.Snapshot // also of the web page
				kit.Must(t, json.Unmarshal([]byte(kit.Lklctl(t, "-n", k.Name, "top", "-o", "json", "-c", "1")), &top))
				dropped := func(l live.Link) bool { return l.RxDropped.N > 0 }
				if top.Totals.Drops.N > 0 || top.Totals.Resets.N == 0 || len(top.Connections) > 0 || slices.ContainsFunc(top.Links, dropped) {
					t.Errorf("top of %s: %+v, %+v, %+v", k.Name, top.Totals, top.Connections, top.Links)
				}
				counters := kit.Lklctl(t, "-n", k.Name, "counters", "-o", "prom")
				if strings.Contains(counters, "\nlklrun_drops") {
					t.Errorf("the counters of %s contain drops: %s", k.Name, counters)
				}
				// Further subflows have resets of their own.
				if want := fmt.Sprintf("\nlklrun_TcpEstabResets_total{instance=%q} %d\n", k.Name, 4*count/5); tt.second == "" && !strings.Contains(counters, want) {
					t.Errorf("want %s in %s", want, counters)
				}
				if r := k.End(); r.Status != 0 {
					t.Error(r)
				}
			}
		})
	}
}

// TestDropsOfMPTCP checks that resets names the reason for which MPTCP refuses a subflow.
func TestDropsOfMPTCP(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := newFramePeer(t, "--engine", engine, "--stack", "mptcp")
			p.Say(`keep.__setitem__("l", socket.create_server(("", 80)))`)
			join := layers.TCPOption{OptionType: 30, OptionLength: 12, OptionData: []byte{0x10, 1, 1, 2, 3, 4, 5, 6, 7, 8}}
			p.tcp(layers.TCP{SrcPort: 4000, DstPort: 80, Seq: 1, SYN: true, Options: []layers.TCPOption{join}}, nil, "")
			var all []drops.Record
			kit.Within(kit.Limit, func() bool { all = p.fresh(); return len(all) > 0 })
			if !slices.ContainsFunc(all, func(r drops.Record) bool {
				return r.Kind == drops.ResetSent && r.Reason == "MPTCP_RST_EMPTCP" && r.Process == "python3" && r.Destination.Port() == 4000
			}) {
				t.Errorf("a subflow for an unknown connection left %+v", all)
			}
			if r := p.End(); r.Status != 0 {
				t.Error(r)
			}
		})
	}
}

// TestRetransmits checks that drops -r names why TCP sends data again, and nothing
// while all is well.
func TestRetransmits(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := newFramePeer(t, "--engine", engine)
			p.Say(`keep.__setitem__("l", socket.create_server(("", 80)))`)
			c := p.connect()
			c.send("hello")
			p.Say(`keep["c"].send(b"hello")`)
			data := p.segment(c.next.SrcPort, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
			c.next.Ack = data.Seq + 5
			p.tcp(c.next, nil, "")
			c.send("hello")
			read := func(flags ...string) (all []drops.Record) {
				t.Helper()
				args := append([]string{"-n", p.Name, "-o", "json", "drops", "-r"}, flags...)
				if err := json.Unmarshal([]byte(kit.Lklctl(t, args...)), &all); err != nil {
					t.Fatal(err)
				}
				return all
			}
			if all := read(); len(all) > 0 {
				t.Errorf("a healthy connection left %+v", all)
			}
			// await waits for reasons in the connections with a port of the peer.
			await := func(port layers.TCPPort, reasons ...string) {
				t.Helper()
				var all []drops.Record
				if !kit.Within(kit.Limit, func() bool {
					all = read("dport", "=", fmt.Sprintf(":%d", port))
					for _, reason := range reasons {
						if !slices.ContainsFunc(all, func(r drops.Record) bool {
							return r.Reason == reason && r.Kind == drops.Retransmit && r.PID != 0 && r.Destination.Port() == uint16(port)
						}) {
							return false
						}
					}
					return true
				}) {
					t.Errorf("want %q, got %+v", reasons, all)
				}
			}
			p.Say(`keep["c"].send(b"lost")`)
			await(c.next.SrcPort, "LOSS_PROBE", "TIMEOUT")
			if all := read("-p", "python3", "dport", "=", fmt.Sprintf(":%d", c.next.SrcPort)); len(all) == 0 || all[0].Bytes != 4 || all[0].PID == 0 {
				t.Errorf("got %+v, want 4 bytes of python3", all)
			}
			p.Say(`exec("s=socket.socket(); s.setblocking(False); s.connect_ex(('10.98.0.1', 4001)); keep['s']=s")`)
			await(4001, "SYN")
			p.tcp(layers.TCP{SrcPort: 4002, DstPort: 80, Seq: 1, SYN: true}, nil, "")
			await(4002, "SYN_ACK")
			c = p.connect()
			for range 5 { // four segments arrive after one that was lost
				p.Say(`keep["c"].send(bytes(1000))`)
			}
			first := p.segment(c.next.SrcPort, func(s *layers.TCP) bool { return len(s.Payload) > 0 })
			for n := range uint32(4) {
				start := first.Seq + 1000
				sack := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, start), start+1000*(n+1))
				p.tcp(c.with(func(s *layers.TCP) {
					s.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: sack}}
				}), nil, "")
			}
			await(c.next.SrcPort, "FAST")
			if got := kit.Lklctl(t, "-n", p.Name, "drops", "-rs"); !strings.Contains(got, "SYN_ACK") || !strings.Contains(got, "fast retransmission") {
				t.Errorf("got %s", got)
			}
			p.T = t
			if r := p.End(); r.Status != 0 {
				t.Error(r)
			}
		})
	}
}

// TestDropsInCapture checks that a capture contains drops and resets, which Wireshark shows,
// and that interfaces and filter select them as they select packets.
func TestDropsInCapture(t *testing.T) {
	kit.Need(t, "tshark", "tcpdump")
	p := newFramePeer(t)
	dir := t.TempDir()
	captures := map[string]*kit.Proc{}
	for name, args := range map[string][]string{"all": nil, "udp": {"-i", "eth0", "udp and dst port 9"}, "other": {"-i", "lo"}} {
		args = slices.Concat([]string{"capture", "-U", "-w", dir + "/" + name}, args)
		args = slices.Insert(args, 1, "-n", p.Name)
		captures[name] = kit.Start(t, exec.Command(kit.Bin("lklctl"), args...))
	}
	read := func(name string) string {
		out, _ := exec.Command("tshark", "-r", dir+"/"+name, "-Y", "systemd_journal", "-T", "fields", "-e", "systemd_journal.message").Output()
		return string(out)
	}
	if !kit.Within(kit.Limit, func() bool {
		p.udp(9, nil, 8)
		p.tcp(layers.TCP{SrcPort: 4000, DstPort: 9, Seq: 1, SYN: true}, nil, "")
		return strings.Contains(read("all"), "drop NO_SOCKET eth0 tcp 10.98.0.1:4000 > 10.98.0.2:9 [S]") && strings.Contains(read("udp"), "udp")
	}) {
		t.Errorf("tshark shows %q and %q", read("all"), read("udp"))
	}
	for _, c := range captures {
		c.Signal(unix.SIGINT)
		if r := c.Wait(kit.Limit); r.Status != 0 {
			t.Error(r)
		}
	}
	all := read("all")
	for _, want := range []string{
		"drop NO_SOCKET eth0 udp 10.98.0.1:4000 > 10.98.0.2:9", "__udp4_lib_rcv: no socket has this port", "reset sent NO_SOCKET eth0 tcp 10.98.0.2:9 > 10.98.0.1:4000 [R]",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing from %s", want, all)
		}
	}
	if got := read("udp"); strings.Contains(got, "tcp") {
		t.Errorf("the filter let pass: %s", got)
	}
	if got := read("other"); got != "" {
		t.Errorf("a capture on lo contains %s", got)
	}
	// Other programs see the packets alone.
	kit.OK(t, kit.Limit, exec.Command("tcpdump", "-nr", dir+"/all"))
	p.T = t
	if r := p.End(); r.Status != 0 {
		t.Error(r)
	}
}

// TestAttachStopped checks that lklctl names the process of an instance that does not answer.
func TestAttachStopped(t *testing.T) {
	for _, tt := range []struct{ engine, pid, who, args string }{
		{"supervise", "host_pid", "its stack host", "netstat"},
		{"supervise", "pid", "its lklrun", "egress"},
		{"supervise", "pid", "its lklrun", "lease"},
		{"preload", "target_pid", "the stack inside its program", "mptcp"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			k := newEnd(t, "--engine", tt.engine)
			pid := kit.ProcessOf(t, k, tt.pid)
			kit.Pause(t, pid, kit.Limit)
			k.Refused(1, fmt.Sprintf("instance %q: %s (pid %d) did not answer in time; check that it is not stopped", k.Name, tt.who, pid), strings.Fields(tt.args)...)
			kit.Must(t, unix.Kill(pid, unix.SIGCONT))
			if r := k.End(); r.Status != 0 {
				t.Error(r)
			}
		})
	}
}
