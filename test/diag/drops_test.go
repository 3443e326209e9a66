// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/drops"
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
	c := &connection{p, layers.TCP{SrcPort: p.port, DstPort: 80, Seq: 1000, SYN: true}}
	p.tcp(c.next, nil, "")
	synack := p.segment(p.port, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	c.next.Seq, c.next.SYN, c.next.ACK, c.next.Ack = 1001, false, true, synack.Seq+1
	p.tcp(c.next, nil, "")
	p.Say(`keep.__setitem__(%d, keep.get("c"))`, p.port)
	if got := p.Say(`keep.__setitem__("c", keep["l"].accept()[0])`); got != "None" {
		p.T.Fatalf("accept: %s", got)
	}
	return c
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
						return len(got) >= len(want)
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
