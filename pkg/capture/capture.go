// SPDX-License-Identifier: Apache-2.0

// Package capture captures the packets of network stacks and writes them to files
// for Wireshark, tshark and tcpdump.
//
// A Session captures on some or all interfaces of one or more stacks. It sorts the
// packets of all interfaces by time, finds the processes that own them, and passes
// them to a Handler. This package has two Handlers: Files writes one file or a
// series of files, and Ring keeps the last packets in memory.
//
// A Stack is an interface of this package, so that other programs can use it for
// stacks of their own. lklctl and lklrun implement it for the stacks of lklrun. To
// read the packets of lklrun's stacks in another program, run "lklctl capture -w -"
// and read pcapng from its standard output.
//
// Parts can be used alone: Pcapng and Pcap write files of any packets, and Compile
// compiles filters in the language of pcap-filter(7). With cgo, Compile uses
// libpcap. Without cgo, or with the build tag nopcap, it runs tcpdump.
package capture

import (
	"net"
	"net/netip"
	"time"
)

// Interface describes an interface on which packets are captured, with the
// content of a pcapng Interface Description Block (draft-ietf-opsawg-pcapng,
// 4.2).
type Interface struct {
	Instance    string // instance of the interface; empty: not known
	Index       int    // interface index in the stack, as in sockaddr_ll
	Name        string // name in the stack, such as eth0
	Description string
	MAC         net.HardwareAddr // nil: the device has no link layer
	Addrs       []netip.Prefix
	Speed       uint64   // speed in bit/s; 0: not known
	LinkType    LinkType // Ethernet, or Raw for a device without link layer
	Snaplen     int      // number of bytes kept of each packet
	Filter      string   // filter in libpcap's language; empty: all packets
	Loopback    bool     // each packet appears twice; only the received copy counts
	OS          string   // the operating system, such as Linux 6.12.0; empty: not known
}

// Direction is the direction of a packet, as seen from the stack.
type Direction uint8

// In means received by the stack, and Out means sent by it.
const (
	Unknown Direction = iota
	In
	Out
)

// String returns in, out, or ? if the direction is not known.
func (d Direction) String() string {
	switch d {
	case In:
		return "in"
	case Out:
		return "out"
	}
	return "?"
}

// Owner is the process whose socket sends or receives a packet.
type Owner struct {
	PID   int    // process ID on the host; 0: not known
	Comm  string // name of the process, as in /proc/PID/comm; empty: not known
	Inode uint64 // inode of the socket in the stack
	FDs   []int  // the descriptors that the process has for the socket; nil: not known
}

// Packet is a captured packet.
type Packet struct {
	Time      time.Time // time at which the stack processed the packet, by the stack's clock
	Interface int       // index into the file's interfaces, in the order of AddInterface
	Length    int       // bytes on the wire, including the link-layer header
	Data      []byte    // the first bytes, up to the snap length
	Dir       Direction
	Cast      Cast // type of the destination, as the device saw it
	Offload   Offload
	Owner     *Owner // nil: not known
	Comment   string // comment for the reader of the file; empty: none
}

// Cast is the type of a packet's link-layer destination. The values are those
// of the reception types in epb_flags (draft-ietf-opsawg-pcapng, 4.3.1).
type Cast uint8

// The reception types.
const (
	CastUnknown Cast = iota
	Unicast
	Multicast
	Broadcast
	Promiscuous // sent to another station
)

// Offload contains bits for the parts of packet processing that a device performs.
type Offload uint8

// The bits, from TP_STATUS_* in include/uapi/linux/if_packet.h.
const (
	CsumNotReady Offload = 1 << iota // the checksum is not computed yet, so a capture shows it as wrong
	CsumValid                        // the checksum was verified
	Segments                         // the packet will be segmented, or was merged from several segments
)

// Stats contains the counters of one interface. They are consistent: each packet
// that the filter accepted (Received) was either read or dropped.
type Stats struct {
	// Received is the number of packets that passed the filter since the
	// start, including dropped ones: tp_packets of PACKET_STATISTICS
	// (packet(7)).
	Received uint64

	// Dropped is the number of received packets that did not fit into the socket's
	// buffer because the reader was slow: tp_drops.
	Dropped uint64

	// Early is set if the stack ended before the final query. The counters
	// are then some 100 ms old and may be too low.
	Early bool
}

// Writer writes packets to a file. Its methods are not safe for concurrent use.
type Writer interface {
	// AddInterface adds an interface and returns its number in the file,
	// for Packet.Interface.
	AddInterface(Interface) (int, error)

	// WritePacket writes one packet. It does not keep references to it.
	WritePacket(*Packet) error

	// WriteStats writes the counters of an interface between two times,
	// usually at the end. A format without counters ignores them.
	WriteStats(iface int, from, to time.Time, s Stats) error

	// Flush writes the buffered data to the underlying writer.
	Flush() error

	// Close writes the buffered data. It does not close the underlying
	// writer.
	Close() error
}
