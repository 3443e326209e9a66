// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"time"
)

// Blocks of pcapng (draft-ietf-opsawg-pcapng, 4).
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6 // Enhanced Packet Block
)

// Options of all blocks, and of specific ones.
const (
	optEnd     = 0
	optComment = 1

	shbOS       = 3
	shbUserAppl = 4
	shbHardware = 2

	ifName        = 2
	ifDescription = 3
	ifIPv4        = 4
	ifIPv6        = 5
	ifMAC         = 6
	ifSpeed       = 8
	ifTsResol     = 9
	ifFilter      = 11
	ifOS          = 12

	epbFlags   = 2
	epbProcess = 8 // epb_processid_threadid

	isbStart        = 2
	isbEnd          = 3
	isbReceived     = 4 // isb_ifrecv
	isbIfDropped    = 5
	isbFilterAccept = 6
	isbOSDropped    = 7
	isbDelivered    = 8 // isb_usrdeliv
)

// maxOption is the maximum length of an option's value.
const maxOption = 1<<16 - 1

// Pcapng writes a file in the format of draft-ietf-opsawg-pcapng, version 1.0,
// with one section and times in nanoseconds. It implements Writer.
type Pcapng struct {
	blocks
	block   []byte
	options bool     // the block has options
	written []uint64 // number of packets of each interface
}

// NewPcapng begins a file. application is the name of the writing program.
func NewPcapng(w io.Writer, application string) (*Pcapng, error) {
	p := &Pcapng{blocks: blocks{w: w}}
	p.begin(blockSection)
	p.u32(0x1a2b3c4d) // byte-order magic, in the machine's order
	p.u16(1)          // version 1.0
	p.u16(0)
	p.u64(^uint64(0)) // the length of the section is not known
	p.text(shbHardware, runtime.GOARCH)
	p.text(shbOS, runtime.GOOS)
	p.text(shbUserAppl, application)
	return p, p.end()
}

// AddInterface writes an Interface Description Block.
func (p *Pcapng) AddInterface(i Interface) (int, error) {
	p.begin(blockInterface)
	p.u16(uint16(i.LinkType))
	p.u16(0)
	p.u32(uint32(i.Snaplen))
	p.text(ifName, i.Name)
	p.text(ifDescription, i.Description)
	for _, a := range i.Addrs {
		p.address(a)
	}
	if len(i.MAC) == 6 {
		p.option(ifMAC, i.MAC)
	}
	if i.Speed != 0 {
		p.option(ifSpeed, binary.NativeEndian.AppendUint64(nil, i.Speed))
	}
	p.option(ifTsResol, []byte{9})
	if i.Filter != "" {
		p.option(ifFilter, append([]byte{0}, i.Filter...)) // 0: in libpcap's language
	}
	p.text(ifOS, i.OS)
	p.written = append(p.written, 0)
	return len(p.written) - 1, p.end()
}

// address writes an address with its network.
func (p *Pcapng) address(a netip.Prefix) {
	switch {
	case !a.IsValid():
	case a.Addr().Is4():
		mask := uint32(0xffffffff)
		if a.Bits() < 32 {
			mask <<= 32 - a.Bits()
		}
		p.option(ifIPv4, binary.BigEndian.AppendUint32(a.Addr().AsSlice(), mask))
	default:
		p.option(ifIPv6, append(a.Addr().AsSlice(), uint8(a.Bits())))
	}
}

// WritePacket writes an Enhanced Packet Block.
func (p *Pcapng) WritePacket(k *Packet) error {
	if err := p.known(k.Interface); err != nil {
		return err
	}
	p.begin(blockPacket)
	p.u32(uint32(k.Interface))
	p.time(k.Time)
	p.u32(uint32(len(k.Data)))
	p.u32(uint32(k.Length))
	p.bytes(k.Data)
	if k.Comment != "" {
		p.text(optComment, k.Comment)
	}
	if f := flags(k); f != 0 {
		p.option(epbFlags, binary.NativeEndian.AppendUint32(nil, f))
	}
	if k.Owner != nil && k.Owner.PID != 0 {
		// The thread is not known, so it is 0.
		p.option(epbProcess, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(k.Owner.PID)), 0))
	}
	p.written[k.Interface]++
	return p.end()
}

// flags builds epb_flags (4.3.1): direction, reception type, checksum and
// segments.
func flags(k *Packet) uint32 {
	f := uint32(k.Dir) | uint32(k.Cast)<<2
	// The bits 9 to 11 are in Offload's order.
	return f | uint32(k.Offload)<<9
}

// WriteStats writes an Interface Statistics Block. Like dumpcap, it also writes the
// socket's counters of received and dropped packets as counters of the interface,
// because readers show only these.
func (p *Pcapng) WriteStats(iface int, from, to time.Time, s Stats) error {
	if err := p.known(iface); err != nil {
		return err
	}
	p.begin(blockStatistics)
	p.u32(uint32(iface))
	p.time(to)
	if s.Early {
		p.text(optComment, "the stack ended before the final query; the counts are about 100 ms old")
	}
	p.option(isbStart, p.stamp(from))
	p.option(isbEnd, p.stamp(to))
	for _, o := range []struct {
		code  uint16
		value uint64
	}{
		{isbReceived, s.Received}, {isbIfDropped, s.Dropped}, {isbFilterAccept, s.Received},
		{isbOSDropped, s.Dropped}, {isbDelivered, p.written[iface]},
	} {
		p.option(o.code, binary.NativeEndian.AppendUint64(nil, o.value))
	}
	return p.end()
}

func (p *Pcapng) known(iface int) error {
	if iface < 0 || iface >= len(p.written) {
		return fmt.Errorf("the file has no interface %d", iface)
	}
	return nil
}

// A block is built in memory and written as a whole: its type and length, the
// body padded to four bytes, any options, and the length again.

func (p *Pcapng) begin(typ uint32) {
	p.block = binary.NativeEndian.AppendUint32(p.block[:0], typ)
	p.u32(0) // the length, set later
	p.options = false
}

func (p *Pcapng) end() error {
	if p.options {
		p.u32(optEnd)
	}
	size := uint32(len(p.block) + 4)
	p.u32(size)
	binary.NativeEndian.PutUint32(p.block[4:], size)
	return p.add(p.block)
}

func (p *Pcapng) u16(v uint16) { p.block = binary.NativeEndian.AppendUint16(p.block, v) }
func (p *Pcapng) u32(v uint32) { p.block = binary.NativeEndian.AppendUint32(p.block, v) }
func (p *Pcapng) u64(v uint64) { p.block = binary.NativeEndian.AppendUint64(p.block, v) }

// bytes appends b, padded to four bytes.
func (p *Pcapng) bytes(b []byte) {
	p.block = append(p.block, b...)
	for range -len(b) & 3 {
		p.block = append(p.block, 0)
	}
}

func (p *Pcapng) option(code uint16, value []byte) {
	p.options = true
	value = value[:min(len(value), maxOption)]
	p.u16(code)
	p.u16(uint16(len(value)))
	p.bytes(value)
}

// text appends a UTF-8 option unless it is empty.
func (p *Pcapng) text(code uint16, s string) {
	if s != "" {
		p.option(code, []byte(s))
	}
}

// time appends a time in nanoseconds (if_tsresol 9), the upper half first.
func (p *Pcapng) time(t time.Time) { p.block = append(p.block, p.stamp(t)...) }

func (p *Pcapng) stamp(t time.Time) []byte {
	var ns uint64
	if !t.IsZero() {
		ns = uint64(t.UnixNano())
	}
	return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(ns>>32)), uint32(ns))
}

// LinkType identifies the header with which packets begin. Its values are those
// of capture files: the registry of pcap-linktype(7).
type LinkType uint16

// The link types of a stack's interfaces, and of captures on all of them.
const (
	LinkTypeEthernet  LinkType = 1
	LinkTypeRaw       LinkType = 101 // IP without a link-layer header
	LinkTypeLinuxSLL2 LinkType = 276
)

// fileBuffer is the size of the write buffer in bytes.
const fileBuffer = 256 << 10

// blocks is a buffer for blocks or records. It writes only complete ones, so that a
// file ends with a complete block even if the disk is full.
type blocks struct {
	w     io.Writer
	buf   []byte
	ends  []int // ends of the blocks in buf
	wrote int64
	err   error // first error of a write
}

// add adds one block.
func (b *blocks) add(block []byte) error {
	if len(b.buf)+len(block) > fileBuffer {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	b.buf = append(b.buf, block...)
	b.ends = append(b.ends, len(b.buf))
	return b.err
}

// Flush writes the buffered data.
func (b *blocks) Flush() error {
	if b.err != nil || len(b.buf) == 0 {
		return b.err
	}
	n, err := b.w.Write(b.buf)
	if err != nil {
		b.err = err
		b.cut(n)
	}
	b.wrote += int64(n)
	b.buf, b.ends = b.buf[:0], b.ends[:0]
	return err
}

// cut truncates an incomplete block at the end of a file, after a write of n
// bytes.
func (b *blocks) cut(n int) {
	whole := 0
	for _, end := range b.ends {
		if end <= n {
			whole = end
		}
	}
	if t, ok := b.w.(interface{ Truncate(size int64) error }); ok && whole < n {
		_ = t.Truncate(b.wrote + int64(whole)) // fails for a pipe
	}
}

// Close writes the buffered data.
func (b *blocks) Close() error { return b.Flush() }

// size returns the length of the file including the buffered data.
func (b *blocks) size() int64 { return b.wrote + int64(len(b.buf)) }
