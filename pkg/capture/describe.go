// SPDX-License-Identifier: Apache-2.0

//go:build !device

package capture

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Stamp is the form of the time at the beginning of a line: the forms of
// tcpdump's -t.
type Stamp int

// The forms of a packet's time.
const (
	StampClock Stamp = iota // 15:04:05.000000, local time
	StampNone               // -t
	StampEpoch              // -tt: seconds since 1970
	StampDelta              // -ttt: time since the previous packet
	StampDate               // -tttt: date and time
	StampSince              // -ttttt: time since the first packet
)

// Dump is the form in which a packet's bytes are shown below its line.
type Dump int

// The forms of a dump, which are those of tcpdump's options.
const (
	DumpNone    Dump = iota
	DumpHex          // -X: hexadecimal and text, without the link header
	DumpHexLink      // -XX: the same with the link header
	DumpText         // -A: text, without the link header
)

// Style selects the content of lines.
type Style struct {
	Stamp      Stamp
	Interfaces bool // show the interface, and its instance if Instances is set
	Instances  bool
	Link       bool // -e: the link header
	Verbose    bool // -v: time to live, type of service, length of the captured data
	Absolute   bool // -S: sequence numbers as on the wire
	Dump       Dump
}

// Line describes a packet in separate parts, so that a terminal can colour
// them.
type Line struct {
	Time      string
	Interface string // eth0, or web/eth0
	Direction string // In, Out or empty
	Text      string // addresses and protocol, in tcpdump's words
	Owner     string // curl(2421), unless the comment begins with it
	Comment   string
	Dump      string // lines that each end in \n
}

// String joins the parts into one line, with the dump below it.
func (l *Line) String() string {
	var b strings.Builder
	for _, part := range []string{l.Time, l.Interface} {
		if part != "" {
			b.WriteString(part + " ")
		}
	}
	if l.Direction != "" {
		fmt.Fprintf(&b, "%-3s ", l.Direction)
	}
	b.WriteString(l.Text)
	if l.Owner != "" {
		b.WriteString("  " + l.Owner)
	}
	if l.Comment != "" {
		b.WriteString("  [" + l.Comment + "]")
	}
	if l.Dump != "" {
		b.WriteString("\n" + strings.TrimSuffix(l.Dump, "\n"))
	}
	return b.String()
}

// Describer converts packets to lines. It remembers the initial sequence number
// of each TCP flow. It is not safe for concurrent use.
type Describer struct {
	style       Style
	flows       flows
	first, last time.Time
}

// NewDescriber returns a Describer that has seen no packet.
func NewDescriber(style Style) *Describer { return &Describer{style: style} }

// Describe describes one packet independently of others, like tcpdump -t. It
// shows the sequence numbers of the wire.
func Describe(p *Packet, lt LinkType) string {
	d := Describer{style: Style{Stamp: StampNone, Absolute: true}}
	return d.text(p, lt)
}

// Line describes the next packet, from the interface ifc.
func (d *Describer) Line(p *Packet, ifc *Interface) Line {
	l := Line{
		Time: d.stamp(p.Time),
		Text: d.text(p, ifc.LinkType),
		Dump: dump(d.style.Dump, p.Data, linkHeader(p.Data, ifc.LinkType)),
	}
	if d.style.Interfaces {
		l.Interface = printable(ifc.Name)
		if d.style.Instances {
			l.Interface = printable(ifc.Instance) + "/" + l.Interface
		}
	}
	switch p.Dir {
	case In:
		l.Direction = "In"
	case Out:
		l.Direction = "Out"
	}
	l.Comment = printable(p.Comment)
	if o := p.Owner; o != nil && o.PID != 0 && !strings.HasPrefix(p.Comment, o.String()) {
		l.Owner = printable(o.String())
	}
	return l
}

func (d *Describer) stamp(t time.Time) string {
	before := d.last
	if d.first.IsZero() {
		d.first, before = t, t
	}
	d.last = t
	switch d.style.Stamp {
	case StampClock:
		return t.Local().Format("15:04:05.000000")
	case StampDate:
		return t.Local().Format("2006-01-02 15:04:05.000000")
	case StampEpoch:
		return fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000)
	case StampDelta:
		return elapsed(t.Sub(before))
	case StampSince:
		return elapsed(t.Sub(d.first))
	}
	return ""
}

// elapsed formats a duration like tcpdump: " 00:00:01.000002".
func elapsed(d time.Duration) string {
	sign := " "
	if d < 0 {
		sign, d = "-", -d
	}
	d = d.Truncate(time.Microsecond)
	return fmt.Sprintf("%s%02d:%02d:%02d.%06d", sign, d/time.Hour, d/time.Minute%60, d/time.Second%60, d%time.Second/time.Microsecond)
}

// text describes the packet itself.
func (d *Describer) text(p *Packet, lt LinkType) string {
	// gopacket recovers from panics of its decoders and returns them as an
	// error layer. With NoCopy, we keep the ownership of the bytes; nothing
	// of the packet outlives this call.
	pkt := gopacket.NewPacket(p.Data, layers.LinkType(lt), gopacket.DecodeOptions{NoCopy: true})
	b := &text{packet: p, decoded: pkt, describer: d}
	b.layers(pkt.Layers())
	if d.style.Verbose && len(p.Data) < p.Length {
		b.add(" (%d of %d bytes captured)", len(p.Data), p.Length)
	}
	return b.String()
}

// text is a description under construction.
type text struct {
	strings.Builder

	packet    *Packet
	decoded   gopacket.Packet
	describer *Describer

	link string // the link header, for packets that are not described otherwise
	src  netip.Addr
	dst  netip.Addr
	in   int // number of bytes up to the end of the present layer
	left int // number of bytes on the wire after the network header
}

func (b *text) add(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// cut marks a header that is malformed or only partly captured. It adds the
// name of the protocol, like tcpdump.
func (b *text) cut(proto string) {
	if len(b.packet.Data) < b.packet.Length {
		b.add(" [|%s]", proto)
	} else {
		b.add(" [%s: malformed]", proto)
	}
}

// layers describes the layers from the link to the first one above the network.
func (b *text) layers(all []gopacket.Layer) {
	style := &b.describer.style
	for i, l := range all {
		rest := all[i+1:]
		b.in += len(l.LayerContents())
		switch l := l.(type) {
		case *layers.Ethernet:
			b.link = fmt.Sprintf("%s > %s, %s, length %d", l.SrcMAC, l.DstMAC, etherType(l.EthernetType), b.packet.Length)
			if style.Link {
				b.add("%s: ", b.link)
			}
		case *layers.Dot1Q:
			b.add("vlan %d, ", l.VLANIdentifier)
			b.link = etherType(l.Type)
		case *layers.ARP:
			b.arp(l)
			return
		case *layers.IPv4:
			b.ipv4(l, rest)
			return
		case *layers.IPv6:
			b.ipv6(l, rest)
			return
		case *layers.LLC, *gopacket.Payload, *gopacket.DecodeFailure, gopacket.ErrorLayer:
			b.other(len(all) == 1)
			return
		}
	}
	b.other(len(all) == 0)
}

// other describes a packet of an unknown network protocol.
func (b *text) other(undecoded bool) {
	switch {
	case undecoded || b.link == "":
		b.add("packet of %d bytes", b.packet.Length)
		b.cut("link")
	case b.describer.style.Link:
		b.WriteString("unknown protocol")
	default:
		b.WriteString(b.link)
	}
}

func etherType(t layers.EthernetType) string {
	switch t {
	case layers.EthernetTypeIPv4, layers.EthernetTypeIPv6, layers.EthernetTypeARP, layers.EthernetTypeDot1Q, layers.EthernetTypeLinkLayerDiscovery:
		return fmt.Sprintf("ethertype %s (0x%04x)", t, uint16(t))
	}
	if t < 0x600 { // IEEE 802.3: a length
		return "802.3"
	}
	return fmt.Sprintf("ethertype 0x%04x", uint16(t))
}

// printable makes external text safe for a line and for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return '.'
		}
		return r
	}, s)
}
