// SPDX-License-Identifier: Apache-2.0

// Package capture takes packets out of a running stack and writes them to files
// that Wireshark, tshark and tcpdump read.
//
// A Source is a packet socket in the stack, on one interface. Its filter is
// compiled by libpcap (Compile) and runs in the stack, so what it refuses costs
// no copy. What the reader is too slow for is dropped by the stack and counted.
// A Writer makes pcapng or classic pcap of the packets, one Rotation a series of
// files.
package capture

import (
	"net"
	"net/netip"
	"time"
)

// Interface is where packets are taken: what an Interface Description Block of
// pcapng says of it (draft-ietf-opsawg-pcapng, 4.2).
type Interface struct {
	Instance    string // the run it belongs to; empty: not known
	Index       int    // in the stack, as in sockaddr_ll
	Name        string // eth0
	Description string
	MAC         net.HardwareAddr // nil: a device without link layer
	Addrs       []netip.Prefix
	Speed       uint64   // bit/s; 0: not known
	LinkType    LinkType // Ethernet, or Raw for a device without link layer
	Snaplen     int      // bytes of each packet that are kept
	Filter      string   // in libpcap's language; empty: all packets
	Loopback    bool     // each packet is seen twice there; the one that arrives counts
	OS          string   // what runs the interface: Linux 6.12.0; empty: not known
}

// Direction is which way a packet went, seen from the stack.
type Direction uint8

// In is what came from the wire, Out what goes there.
const (
	Unknown Direction = iota
	In
	Out
)

// String returns in, out, or ? when that is not known.
func (d Direction) String() string {
	switch d {
	case In:
		return "in"
	case Out:
		return "out"
	}
	return "?"
}

// Owner is the process whose socket sent or gets a packet.
type Owner struct {
	PID   int    // on the host; 0: not known
	Comm  string // its name, as in /proc/PID/comm; empty: not known
	Inode uint64 // of the socket in the stack
	FDs   []int  // the process's descriptors of that socket; nil: not known
}

// Packet is what was captured of one packet.
type Packet struct {
	Time      time.Time // when the stack saw it, by the stack's clock
	Interface int       // index into the list of the file, in the order of AddInterface
	Length    int       // bytes on the wire, the link layer's header included
	Data      []byte    // the first of them, as many as the snap length allows
	Dir       Direction
	Cast      Cast // whom it was for, as the device saw it
	Offload   Offload
	Owner     *Owner // nil: not known
	Comment   string // for a person; empty: none
}

// Cast is whom a packet's link-layer address means; the values are those of the
// reception types in epb_flags (draft-ietf-opsawg-pcapng, 4.3.1).
type Cast uint8

// The reception types.
const (
	CastUnknown Cast = iota
	Unicast
	Multicast
	Broadcast
	Promiscuous // for somebody else
)

// Offload is what of a packet is left to a device, or was done by it: bits.
type Offload uint8

// The bits, as TP_STATUS_* in include/uapi/linux/if_packet.h tells them.
const (
	CsumNotReady Offload = 1 << iota // its checksum is not computed yet: a capture shows it as wrong
	CsumValid                        // its checksum was checked
	Segments                         // it will be cut into several on the wire, or was put together of several
)

// Stats are the counts of one interface. They belong together: what a filter let
// through (Received) was either read or dropped.
type Stats struct {
	// Received is how many packets passed the filter since the beginning, those
	// that were dropped included: tp_packets of PACKET_STATISTICS (packet(7)).
	Received uint64

	// Dropped is how many of them found no room in the socket's buffer because
	// the reader was slow: tp_drops.
	Dropped uint64

	// Early says that the stack ended before it could be asked a last time: then
	// the counts are some 100 ms older, and may be too low.
	Early bool
}

// Writer writes packets to a file. Its methods are for one goroutine.
type Writer interface {
	// AddInterface describes one more interface and returns its number in the
	// file, which is what Packet.Interface holds.
	AddInterface(Interface) (int, error)

	// WritePacket writes one packet; it keeps nothing of it.
	WritePacket(*Packet) error

	// WriteStats tells the counts of an interface between two times, usually at
	// the end. A format that has no place for them drops them.
	WriteStats(iface int, from, to time.Time, s Stats) error

	// Flush writes what is still in memory.
	Flush() error

	// Close writes what is still in memory; what lies underneath stays open.
	Close() error
}
