// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/capture"
)

const (
	// waitBatch is the maximum number of packets in a call that may block.
	waitBatch = 16

	// drainBatch is the maximum number of packets in any call. It is
	// limited by the buffers of CTL_SYSCALL: the message headers, and, per
	// packet, an iovec, the data, its valid length, the control messages
	// and the address.
	drainBatch = (ctlproto.CTL_SYSCALL_BUFS - 1) / 5
)

const (
	// controlSize has room for struct tpacket_auxdata and struct timespec.
	controlSize = 80
	// nameSize has room for struct sockaddr_ll.
	nameSize = 24
)

// batch holds the buffers of one recvmmsg call. They are reused.
type batch struct {
	layout
	keep             int // maximum number of bytes kept of a packet
	call             *stackconn.Pending
	msgs             *stackconn.Buffer
	data, ctrl, name []*stackconn.Buffer
}

// newBatch returns a batch for up to n packets. It keeps snaplen bytes of each
// packet.
func newBatch(l layout, snaplen, n int) *batch {
	b := &batch{layout: l, keep: snaplen}
	b.msgs = stackconn.InOut(make([]byte, n*b.size))
	for i := range n {
		at := i * b.size
		iov := make([]byte, 2*b.word) // struct iovec
		b.put(iov[b.word:], b.keep)
		b.data = append(b.data, stackconn.Received(b.keep, b.msgs, at+b.count))
		b.msgs.Point(at+b.iov, stackconn.In(iov).Point(0, b.data[i]))
	}
	for i := range n {
		b.ctrl = append(b.ctrl, stackconn.Out(make([]byte, controlSize)))
		b.name = append(b.name, stackconn.Out(make([]byte, nameSize)))
		b.msgs.Point(i*b.size+b.control, b.ctrl[i]).Point(i*b.size+b.nameAt, b.name[i])
	}
	return b
}

// start starts the call in the stack. received waits for its result.
func (b *batch) start(ctx context.Context, conn *stackconn.Conn, fd int, call stackconn.Call) (err error) {
	clear(b.msgs.Data)
	for i := range b.data {
		m := b.msgs.Data[i*b.size:]
		binary.LittleEndian.PutUint32(m[b.nameLen:], nameSize)
		b.put(m[b.iovLen:], 1)
		b.put(m[b.controlLen:], controlSize)
	}
	call.Nr = unix.SYS_RECVMMSG
	call.Args = []any{fd, b.msgs, len(b.data), unix.MSG_DONTWAIT, nil}
	b.call, err = conn.Start(ctx, call)
	return err
}

// received returns the number of packets.
func (b *batch) received(ctx context.Context) (int, error) {
	n, err := b.call.Result(ctx)
	if err == nil && n > int64(len(b.data)) {
		err = fmt.Errorf("the stack returned %d packets instead of %d", n, len(b.data))
	}
	if err != nil {
		n = 0
	}
	return int(n), err
}

// packets converts the first n messages. It copies the bytes of each packet,
// because a reply with only a few packets is much larger than the packets.
func (b *batch) packets(n int, lt capture.LinkType) ([]capture.Packet, error) {
	if n == 0 {
		return nil, nil
	}
	slab := make([]byte, 0, b.bytes(n)+n*vlanTag)
	packets := make([]capture.Packet, n)
	for i := range n {
		p := &packets[i]
		aux, err := b.tell(i, p)
		if err != nil {
			return nil, err
		}
		data := b.data[i].Data
		start := len(slab)
		if aux.tagged() && lt == capture.LinkTypeEthernet && len(data) >= macAddrs {
			slab = append(slab, data[:macAddrs]...)
			slab = binary.BigEndian.AppendUint16(slab, aux.tpid)
			slab = binary.BigEndian.AppendUint16(slab, aux.tci)
			data = data[macAddrs:]
			p.Length += vlanTag
		}
		slab = append(slab, data...)
		p.Data = slab[start:len(slab):len(slab)]
		p.Dir, p.Cast = direction(b.name[i].Data[10]) // sll_pkttype
	}
	return packets, nil
}

// bytes returns the total number of bytes of the first n packets.
func (b *batch) bytes(n int) (total int) {
	for i := range n {
		total += len(b.data[i].Data)
	}
	return total
}

const (
	macAddrs = 12 // number of bytes before a VLAN tag: the two MAC addresses
	vlanTag  = 4
)

// aux holds the VLAN tag from struct tpacket_auxdata (packet(7)).
type aux struct {
	status    uint32
	tci, tpid uint16
}

// Bits of tp_status (include/uapi/linux/if_packet.h).
const (
	tpCsumNotReady  = 1 << 3
	tpVLANValid     = 1 << 4
	tpVLANTPIDValid = 1 << 6
	tpCsumValid     = 1 << 7
	tpGSOTCP        = 1 << 8
)

func (a aux) tagged() bool { return a.status&tpVLANValid != 0 }

// tell reads the control messages of a packet, which contain its time, its
// length and its VLAN tag.
func (b *batch) tell(i int, p *capture.Packet) (a aux, err error) {
	rest := b.ctrl[i].Data[:b.get(b.msgs.Data[i*b.size+b.controlLen:], controlSize)]
	p.Length = len(b.data[i].Data)
	for len(rest) >= b.cmsg {
		n := b.get(rest, controlSize+1)
		level, typ := int(binary.NativeEndian.Uint32(rest[b.word:])), int(binary.NativeEndian.Uint32(rest[b.word+4:]))
		if n < b.cmsg || n > len(rest) {
			return a, fmt.Errorf("the stack returned a control message of %d bytes instead of %d", n, len(rest))
		}
		body := rest[b.cmsg:n]
		switch {
		case level == unix.SOL_PACKET && typ == unix.PACKET_AUXDATA && len(body) >= 20:
			a = auxOf(body)
			p.Length = int(binary.NativeEndian.Uint32(body[4:])) // tp_len
		case level == unix.SOL_SOCKET && typ == b.timestamp && len(body) >= 16:
			p.Time = time.Unix(int64(binary.NativeEndian.Uint64(body)), int64(binary.NativeEndian.Uint64(body[8:])))
		}
		rest = rest[min((n+b.word-1)&^(b.word-1), len(rest)):]
	}
	p.Offload = offload(a.status)
	return a, nil
}

func auxOf(b []byte) aux {
	a := aux{
		status: binary.NativeEndian.Uint32(b),
		tci:    binary.NativeEndian.Uint16(b[16:]),
		tpid:   binary.NativeEndian.Uint16(b[18:]),
	}
	if a.status&tpVLANTPIDValid == 0 {
		a.tpid = unix.ETH_P_8021Q
	}
	return a
}

func offload(status uint32) (o capture.Offload) {
	for _, bit := range []struct {
		status uint32
		is     capture.Offload
	}{{tpCsumNotReady, capture.CsumNotReady}, {tpCsumValid, capture.CsumValid}, {tpGSOTCP, capture.Segments}} {
		if status&bit.status != 0 {
			o |= bit.is
		}
	}
	return o
}

// direction converts sll_pkttype (packet(7)) to a direction and the kind of
// receivers.
func direction(typ byte) (capture.Direction, capture.Cast) {
	switch typ {
	case unix.PACKET_HOST:
		return capture.In, capture.Unicast
	case unix.PACKET_BROADCAST:
		return capture.In, capture.Broadcast
	case unix.PACKET_MULTICAST:
		return capture.In, capture.Multicast
	case unix.PACKET_OTHERHOST:
		return capture.In, capture.Promiscuous
	case unix.PACKET_OUTGOING:
		return capture.Out, capture.CastUnknown
	}
	return capture.Unknown, capture.CastUnknown
}
