// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Pcap writes a file in the classic format of libpcap with times in nanoseconds
// (pcap-savefile(5)). A file has one link type. For several interfaces it is
// LINUX_SLL2, whose header contains the interface's number and the packet's
// direction. Pcap implements Writer, but drops comments, owners and counters.
type Pcap struct {
	blocks
	cooked bool
	ifaces []Interface
	record []byte
}

// NewPcap begins a file for packets of several interfaces, or for packets of one
// interface, whose link type becomes that of the file.
func NewPcap(w io.Writer, several bool) *Pcap {
	return &Pcap{blocks: blocks{w: w}, cooked: several}
}

// pcapMagic is the magic number of files with nanoseconds.
const pcapMagic = 0xa1b23c4d

// AddInterface adds an interface. The first one begins the file.
func (p *Pcap) AddInterface(i Interface) (int, error) {
	p.ifaces = append(p.ifaces, i)
	if len(p.ifaces) > 1 {
		if !p.cooked {
			return 0, fmt.Errorf("a file in the classic pcap format has only one interface, and %s is a second one", i.Name)
		}
		return len(p.ifaces) - 1, nil
	}
	lt, snap := i.LinkType, i.Snaplen
	if p.cooked {
		lt, snap = LinkTypeLinuxSLL2, i.Snaplen+sll2Size
	}
	h := binary.NativeEndian.AppendUint32(nil, pcapMagic)
	h = binary.NativeEndian.AppendUint16(h, 2) // version 2.4
	h = binary.NativeEndian.AppendUint16(h, 4)
	h = binary.NativeEndian.AppendUint64(h, 0)
	h = binary.NativeEndian.AppendUint32(h, uint32(min(snap, MaxSnaplen)))
	h = binary.NativeEndian.AppendUint32(h, uint32(lt))
	return 0, p.add(h)
}

// WritePacket writes one packet.
func (p *Pcap) WritePacket(k *Packet) error {
	if k.Interface < 0 || k.Interface >= len(p.ifaces) {
		return fmt.Errorf("the file has no interface %d", k.Interface)
	}
	data, length := k.Data, k.Length
	var link []byte
	if p.cooked {
		var skipped int
		link, skipped = sll2(k, &p.ifaces[k.Interface])
		data = data[skipped:]
		length += len(link) - skipped
	}
	ns := k.Time.UnixNano()
	h := binary.NativeEndian.AppendUint32(p.record[:0], uint32(ns/1e9))
	h = binary.NativeEndian.AppendUint32(h, uint32(ns%1e9))
	h = binary.NativeEndian.AppendUint32(h, uint32(len(link)+len(data)))
	h = binary.NativeEndian.AppendUint32(h, uint32(length))
	p.record = append(append(h, link...), data...)
	return p.add(p.record)
}

const (
	sll2Size = 20
	ethSize  = 14
)

// sll2 returns the LINKTYPE_LINUX_SLL2 header of a packet, and the number of
// the packet's bytes that it replaces.
func sll2(k *Packet, i *Interface) (head []byte, skipped int) {
	proto, arphrd := uint16(0), uint16(unix.ARPHRD_NONE)
	var mac []byte
	if i.LinkType == LinkTypeEthernet {
		arphrd = unix.ARPHRD_ETHER
		if i.Loopback {
			arphrd = unix.ARPHRD_LOOPBACK
		}
		if len(k.Data) >= ethSize {
			mac, proto, skipped = k.Data[6:12], binary.BigEndian.Uint16(k.Data[12:]), ethSize
		}
	} else if len(k.Data) > 0 {
		proto = map[byte]uint16{4: unix.ETH_P_IP, 6: unix.ETH_P_IPV6}[k.Data[0]>>4]
	}
	typ := map[Cast]byte{Broadcast: unix.PACKET_BROADCAST, Multicast: unix.PACKET_MULTICAST, Promiscuous: unix.PACKET_OTHERHOST}[k.Cast]
	if k.Dir == Out {
		typ = unix.PACKET_OUTGOING
	}
	head = binary.BigEndian.AppendUint16(nil, proto)
	head = append(head, 0, 0)
	head = binary.BigEndian.AppendUint32(head, uint32(i.Index))
	head = binary.BigEndian.AppendUint16(head, arphrd)
	head = append(head, typ, uint8(len(mac)))
	head = append(head, make([]byte, 8)...)
	copy(head[12:], mac)
	return head, skipped
}

// WriteStats does nothing: the format has no counters.
func (p *Pcap) WriteStats(int, time.Time, time.Time, Stats) error { return nil }
