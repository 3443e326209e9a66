// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	etherHead  = 14
	acceptAll  = 1 << 18 // more bytes than any packet has
	arpReply   = 2       // RFC 826
	maxPktType = unix.PACKET_MULTICAST
)

// Offsets in the IPv4 (RFC 791) and IPv6 (RFC 8200) headers.
const (
	ip4Fragment = 6
	ip4Proto    = 9
	ip4Src      = 12
	ip4Dst      = 16
	ip6Next     = 6
	ip6Src      = 8
	ip6Dst      = 24
	ip6Head     = 40
	fragHead    = 8 // size of the IPv6 fragment header
)

// The ICMP (RFC 792) and ICMPv6 (RFC 4443) messages that answer sent packets.
// The host itself answers echo requests.
var (
	icmp4Answers = []uint32{0, 3, 11, 12}
	icmp6Answers = []uint32{1, 2, 3, 4, 129}

	// The neighbour discovery messages (RFC 4861) from which a host learns:
	// router and neighbour advertisements, and redirects. The filter drops
	// solicitations for the address, and ARP requests, because the host
	// answers them. One answer is enough: host and stack have the same
	// Ethernet address.
	ndAnswers = []uint32{134, 136, 137}
)

// Filter returns the filter of the stack's packet socket on a device with
// shared addresses. It accepts
//
//   - packets to a shared address and a port of the stack;
//   - answers of ICMP, ARP and neighbour discovery;
//   - later fragments of packets, which contain no ports.
//
// If ethernet is set, packets begin with an Ethernet header (SOCK_RAW),
// otherwise with an IP header (SOCK_DGRAM).
func Filter(ethernet bool, addrs []netip.Addr, ports Ports) ([]bpf.RawInstruction, error) {
	p := &program{labels: map[string]int{}}
	if ethernet {
		p.base = etherHead
	}
	// Drop packets to others and packets that the host itself sent.
	p.add(bpf.LoadExtension{Num: bpf.ExtType})
	p.when(bpf.JumpGreaterThan, uint32(maxPktType), "drop")
	p.add(bpf.LoadExtension{Num: bpf.ExtVLANTagPresent})
	p.when(bpf.JumpNotEqual, 0, "drop")
	p.add(bpf.LoadExtension{Num: bpf.ExtProto})
	p.when(bpf.JumpEqual, unix.ETH_P_IP, "ip4")
	p.when(bpf.JumpEqual, unix.ETH_P_IPV6, "ip6")
	if ethernet {
		p.when(bpf.JumpNotEqual, unix.ETH_P_ARP, "drop")
		p.load(6, 2)
		p.when(bpf.JumpEqual, arpReply, "accept")
	}
	p.to("drop")

	p.ip4(addrs)
	p.ip6(addrs)

	p.label("ports") // register A contains the destination port
	p.when(bpf.JumpLessThan, uint32(ports.First), "listen")
	p.when(bpf.JumpLessOrEqual, uint32(ports.Last), "accept")
	p.label("listen")
	for _, l := range ports.outside() {
		p.when(bpf.JumpEqual, uint32(l), "accept")
	}
	p.label("drop")
	p.add(bpf.RetConstant{Val: 0})
	p.label("accept")
	p.add(bpf.RetConstant{Val: acceptAll})
	return p.assemble()
}

func (p *program) ip4(addrs []netip.Addr) {
	p.label("ip4")
	p.load(ip4Dst, 4)
	for _, a := range addrs {
		if a.Is4() {
			b := a.As4()
			p.when(bpf.JumpEqual, binary.BigEndian.Uint32(b[:]), "ip4-ours")
		}
	}
	p.to("drop")

	p.label("ip4-ours")
	p.add(bpf.LoadMemShift{Off: p.base})
	p.load(ip4Proto, 1)
	p.when(bpf.JumpEqual, unix.IPPROTO_TCP, "ip4-ports")
	p.when(bpf.JumpEqual, unix.IPPROTO_UDP, "ip4-ports")
	p.when(bpf.JumpNotEqual, unix.IPPROTO_ICMP, "drop")
	p.load(ip4Fragment, 2)
	p.when(bpf.JumpBitsSet, 0x1fff, "accept")
	p.add(bpf.LoadIndirect{Off: p.base, Size: 1})
	p.any(icmp4Answers, "accept")
	p.to("drop")

	p.label("ip4-ports")
	p.load(ip4Fragment, 2)
	p.when(bpf.JumpBitsSet, 0x1fff, "accept")
	p.add(bpf.LoadIndirect{Off: p.base + 2, Size: 2})
	p.to("ports")
}

func (p *program) ip6(addrs []netip.Addr) {
	p.label("ip6")
	p.load(ip6Next, 1)
	p.when(bpf.JumpNotEqual, unix.IPPROTO_ICMPV6, "ip6-dst")
	p.load(ip6Head, 1)
	p.any(ndAnswers, "accept")

	p.label("ip6-dst")
	for _, a := range addrs {
		if !a.Is6() {
			continue
		}
		next := "ip6-not-" + a.String()
		b := a.As16()
		for n := 0; n < len(b); n += 4 {
			p.load(uint32(ip6Dst+n), 4)
			p.when(bpf.JumpNotEqual, binary.BigEndian.Uint32(b[n:]), next)
		}
		p.to("ip6-ours")
		p.label(next)
	}
	p.to("drop")

	p.label("ip6-ours")
	p.load(ip6Next, 1)
	p.when(bpf.JumpEqual, unix.IPPROTO_TCP, "ip6-ports")
	p.when(bpf.JumpEqual, unix.IPPROTO_UDP, "ip6-ports")
	p.when(bpf.JumpEqual, unix.IPPROTO_FRAGMENT, "ip6-fragment")
	p.when(bpf.JumpNotEqual, unix.IPPROTO_ICMPV6, "drop")
	p.load(ip6Head, 1)
	p.any(icmp6Answers, "accept")
	p.to("drop")

	p.label("ip6-ports")
	p.load(ip6Head+2, 2)
	p.to("ports")

	p.label("ip6-fragment")
	p.load(ip6Head+2, 2)
	p.when(bpf.JumpBitsSet, 0xfff8, "accept")
	p.load(ip6Head, 1)
	p.when(bpf.JumpEqual, unix.IPPROTO_TCP, "ip6-first")
	p.when(bpf.JumpEqual, unix.IPPROTO_UDP, "ip6-first")
	p.when(bpf.JumpNotEqual, unix.IPPROTO_ICMPV6, "drop")
	p.load(ip6Head+fragHead, 1)
	p.any(icmp6Answers, "accept")
	p.to("drop")

	p.label("ip6-first")
	p.load(ip6Head+fragHead+2, 2)
	p.to("ports")
}

// program is a filter under construction, with labels instead of jump
// distances.
type program struct {
	base   uint32 // start of the network header
	ins    []bpf.Instruction
	gotos  []reference
	labels map[string]int
}

type reference struct {
	at int
	to string
}

func (p *program) add(i bpf.Instruction) { p.ins = append(p.ins, i) }

// load loads size bytes at an offset in the network header.
func (p *program) load(off uint32, size int) {
	p.add(bpf.LoadAbsolute{Off: p.base + off, Size: size})
}

func (p *program) label(name string) { p.labels[name] = len(p.ins) }

// to jumps to a label, which must come later, because BPF programs cannot jump
// backwards.
func (p *program) to(label string) {
	p.gotos = append(p.gotos, reference{len(p.ins), label})
	p.add(bpf.Jump{})
}

// when jumps to a label if the condition holds for register A. It uses two
// instructions, because a conditional jump reaches only 255 instructions.
func (p *program) when(cond bpf.JumpTest, value uint32, label string) {
	p.add(bpf.JumpIf{Cond: cond, Val: value, SkipFalse: 1})
	p.to(label)
}

func (p *program) any(values []uint32, label string) {
	for _, v := range values {
		p.when(bpf.JumpEqual, v, label)
	}
}

func (p *program) assemble() ([]bpf.RawInstruction, error) {
	for _, r := range p.gotos {
		p.ins[r.at] = bpf.Jump{Skip: uint32(p.labels[r.to] - r.at - 1)}
	}
	return bpf.Assemble(p.ins)
}
