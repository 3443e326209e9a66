// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket/layers"
)

// maxFlows limits the memory of a Describer. If there are more flows, it
// forgets all, and then numbers each flow from its present position.
const maxFlows = 8192

// flow is one direction of a connection.
type flow struct{ src, dst netip.AddrPort }

func (f flow) reverse() flow { return flow{f.dst, f.src} }

// flows holds the initial sequence number of each flow: that of its SYN, or the
// one before the first byte seen.
type flows map[flow]uint32

func (f *flows) put(k flow, seq uint32) {
	if *f == nil || len(*f) >= maxFlows {
		*f = flows{}
	}
	(*f)[k] = seq
}

func (b *text) tcp(t *layers.TCP) {
	if t.SrcPort == 0 && t.DstPort == 0 && len(t.Contents) == 0 {
		b.add("%s > %s: TCP, length %d", b.src, b.dst, b.left)
		b.cut("tcp")
		return
	}
	f := flow{netip.AddrPortFrom(b.src, uint16(t.SrcPort)), netip.AddrPortFrom(b.dst, uint16(t.DstPort))}
	b.add("%s.%d > %s.%d: Flags [%s]", b.src, uint16(t.SrcPort), b.dst, uint16(t.DstPort), tcpFlags(t))
	length := max(b.left-int(t.DataOffset)*4, 0)
	seq, ack := b.relative(f, t)
	if length > 0 || t.SYN || t.FIN || t.RST {
		b.add(", seq %d", seq)
		if length > 0 {
			b.add(":%d", seq+uint32(length))
		}
	}
	if t.ACK {
		b.add(", ack %d", ack)
	}
	b.add(", win %d", t.Window)
	if t.URG {
		b.add(", urg %d", t.Urgent)
	}
	if len(t.Contents) < int(t.DataOffset)*4 || t.DataOffset < 5 || b.broken() {
		b.cut("tcp")
	} else if options := tcpOptions(t); len(options) > 0 {
		b.add(", options [%s]", strings.Join(options, ","))
	}
	b.add(", length %d", length)
}

// relative returns the sequence numbers to show. They count from the beginning
// of the flow. In a handshake, and in the first packet of a flow, they are
// those of the wire.
func (b *text) relative(f flow, t *layers.TCP) (seq, ack uint32) {
	d := b.describer
	if d.style.Absolute {
		return t.Seq, t.Ack
	}
	if t.SYN {
		d.flows.put(f, t.Seq)
		return t.Seq, t.Ack
	}
	number := func(k flow, n uint32) uint32 {
		begin, ok := d.flows[k]
		if !ok {
			d.flows.put(k, n-1)
			return n
		}
		return n - begin
	}
	seq = number(f, t.Seq)
	if t.ACK {
		ack = number(f.reverse(), t.Ack)
	}
	return seq, ack
}

// tcpFlags formats the flags with tcpdump's letters.
func tcpFlags(t *layers.TCP) string {
	var b strings.Builder
	for _, f := range []struct {
		on     bool
		letter byte
	}{{t.FIN, 'F'}, {t.SYN, 'S'}, {t.RST, 'R'}, {t.PSH, 'P'}, {t.ACK, '.'}, {t.URG, 'U'}, {t.ECE, 'E'}, {t.CWR, 'W'}, {t.NS, 'e'}} {
		if f.on {
			b.WriteByte(f.letter)
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

func tcpOptions(t *layers.TCP) []string {
	var all []string
	for i := range t.Options {
		all = append(all, tcpOption(&t.Options[i], t))
	}
	// gopacket treats the rest after a malformed option as padding.
	if len(t.Padding) > 0 && t.Padding[0] != layers.TCPOptionKindEndList {
		all = append(all, fmt.Sprintf("malformed %#x", t.Padding))
	}
	return all
}

// tcpOption describes one option in tcpdump's words, and an MPTCP option in
// those of RFC 8684.
func tcpOption(o *layers.TCPOption, t *layers.TCP) string {
	d := o.OptionData
	switch {
	case o.OptionType == layers.TCPOptionKindEndList:
		return "eol"
	case o.OptionType == layers.TCPOptionKindNop:
		return "nop"
	case o.OptionType == layers.TCPOptionKindMSS && len(d) == 2:
		return fmt.Sprintf("mss %d", binary.BigEndian.Uint16(d))
	case o.OptionType == layers.TCPOptionKindWindowScale && len(d) == 1:
		return fmt.Sprintf("wscale %d", d[0])
	case o.OptionType == layers.TCPOptionKindSACKPermitted:
		return "sackOK"
	case o.OptionType == layers.TCPOptionKindSACK && len(d) > 0 && len(d)%8 == 0:
		text := fmt.Sprintf("sack %d ", len(d)/8)
		for ; len(d) > 0; d = d[8:] {
			text += fmt.Sprintf("{%d:%d}", binary.BigEndian.Uint32(d), binary.BigEndian.Uint32(d[4:]))
		}
		return text
	case o.OptionType == layers.TCPOptionKindTimestamps && len(d) == 8:
		return fmt.Sprintf("TS val %d ecr %d", binary.BigEndian.Uint32(d), binary.BigEndian.Uint32(d[4:]))
	case o.OptionType == layers.TCPOptionKindMultipathTCP:
		return "mptcp " + mptcpOption(o, t)
	}
	switch o.OptionType {
	case 19: // IANA, TCP Option Kind Numbers
		return "md5"
	case 29:
		return "tcp-ao"
	case 34:
		if len(d) == 0 {
			return "tfo cookiereq"
		}
		return fmt.Sprintf("tfo cookie %x", d)
	}
	return fmt.Sprintf("unknown-%d %#x", uint8(o.OptionType), d)
}
