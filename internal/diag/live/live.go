// SPDX-License-Identifier: Apache-2.0

// Package live monitors a running stack: its interfaces, its connections with their
// subflows, their rates, and the CPU time used. lklctl top and lklctl web show the
// result.
//
// A Collector takes one Snapshot after another over one connection. A Monitor has a
// Collector for each running instance. Numbers that the stack does not report are absent,
// and so are rates in the first snapshot.
package live

import (
	"time"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// MaxConnections limits the connections in a snapshot to the busiest.
const MaxConnections = 200

// Value is a number that may be absent.
type Value = sockdiag.Value

// Snapshot is the state of an instance at one time.
type Snapshot struct {
	// When the stack was asked.
	Time time.Time `json:"time"`
	// Seconds since the snapshot before, which the rates are an average of; absent
	// in the first.
	Interval float64 `json:"interval_s,omitempty"`
	// Whose snapshot it is.
	Instance Instance `json:"instance"`
	// CPU time of the instance's processes.
	CPU CPU `json:"cpu"`
	// Sums over the instance.
	Totals Totals `json:"totals"`
	// The stack's interfaces, by index, lo among them.
	Links []Link `json:"links"`
	// TCP and MPTCP connections, the busiest first; no listening sockets.
	Connections []Connection `json:"connections"`
}

// Instance identifies a run of lklrun.
type Instance struct {
	// Name, as lklctl -n takes it.
	Name string `json:"name"`
	// Name of the stack: mptcp, bbr, host, ...
	Stack string `json:"stack"`
	// Release of the stack's kernel.
	Release string `json:"release"`
	// How sockets reach the stack: supervise or preload.
	Engine string `json:"engine"`
	// Command line of the program, quoted for a shell.
	Command string `json:"command"`
	// When lklrun was started.
	Started time.Time `json:"started"`
	// Process of lklrun.
	PID int `json:"pid"`
	// Process of the program.
	TargetPID int `json:"target_pid,omitempty"`
}

// Link is an interface of the stack. Sent and received are from the stack's view, since
// the interface was made.
type Link struct {
	// Name in the stack.
	Name string `json:"name"`
	// Index in the stack.
	Index int `json:"index"`
	// One of "up", "down" and "no carrier".
	State string `json:"state"`
	// Addresses, each with the length of its prefix.
	Addrs []string `json:"addrs"`
	// Bytes received, with the link layer's headers.
	RxBytes Value `json:"rx_bytes,omitzero"`
	// Bytes sent, with the link layer's headers.
	TxBytes Value `json:"tx_bytes,omitzero"`
	// Packets received.
	RxPackets Value `json:"rx_packets,omitzero"`
	// Packets sent.
	TxPackets Value `json:"tx_packets,omitzero"`
	// Packets received and not delivered, for want of room.
	RxDropped Value `json:"rx_dropped,omitzero"`
	// Packets that were to be sent and were not.
	TxDropped Value `json:"tx_dropped,omitzero"`
	// Bits a second received since the snapshot before.
	RxRate Value `json:"rx_bit_s,omitzero"`
	// Bits a second sent since the snapshot before.
	TxRate Value `json:"tx_bit_s,omitzero"`
}

// Connection is a TCP or MPTCP connection. Bytes are those of the program: each counts
// once, whichever subflow carried it and however often.
type Connection struct {
	// The socket's cookie in hexadecimal: the stack gives it to no other.
	ID string `json:"id"`
	// mptcp, also of a connection that fell back, or tcp.
	Proto string `json:"proto"`
	// State of the socket as ss(8) names it.
	State string `json:"state"`
	// Our address and port.
	Local string `json:"local"`
	// The peer's address and port.
	Remote string `json:"remote"`
	// Name of the first process that has the socket.
	Process string `json:"process,omitempty"`
	// That process.
	PID int `json:"pid,omitempty"`
	// MPTCP's token of the connection on this side, eight hexadecimal digits.
	Token string `json:"token,omitempty"`
	// It was to be MPTCP, and is plain TCP: the peer or the path has no MPTCP.
	Fallback bool `json:"fallback,omitempty"`
	// Bits a second sent since the snapshot before.
	TxRate Value `json:"tx_bit_s,omitzero"`
	// Bits a second received since the snapshot before.
	RxRate Value `json:"rx_bit_s,omitzero"`
	// Bytes sent.
	BytesSent Value `json:"bytes_sent,omitzero"`
	// Bytes received.
	BytesReceived Value `json:"bytes_received,omitzero"`
	// Segments sent again, by all subflows that are still there.
	Retrans Value `json:"retrans,omitzero"`
	// What carries it; a TCP connection is its own and only subflow.
	Subflows []Subflow `json:"subflows"`

	// Sockets are the connection and its subflows as sock_diag tells of them; a TCP
	// connection has no subflows there.
	Sockets sockdiag.Connection `json:"-"`
}

// Subflow is a TCP connection, perhaps one of several that carry an MPTCP connection.
// Bytes are those of TCP: retransmitted bytes count again.
type Subflow struct {
	// The socket's cookie in hexadecimal.
	ID string `json:"id"`
	// Interface that has our address.
	Iface string `json:"iface,omitempty"`
	// State of the socket as ss(8) names it.
	State string `json:"state"`
	// Our address and port.
	Local string `json:"local"`
	// The peer's address and port.
	Remote string `json:"remote"`
	// Either side wants it used only when nothing else carries.
	Backup bool `json:"backup"`
	// Smoothed round-trip time in microseconds.
	RTT Value `json:"rtt_us,omitzero"`
	// Congestion window in segments.
	Cwnd Value `json:"cwnd,omitzero"`
	// Slow-start threshold in segments; absent before it was set.
	Ssthresh Value `json:"ssthresh,omitzero"`
	// Rate in bits a second to which sending is spread.
	PacingRate Value `json:"pacing_bit_s,omitzero"`
	// Bytes sent.
	BytesSent Value `json:"bytes_sent,omitzero"`
	// Bytes received.
	BytesReceived Value `json:"bytes_received,omitzero"`
	// Segments sent again.
	Retrans Value `json:"retrans,omitzero"`
	// Bits a second sent since the snapshot before.
	TxRate Value `json:"tx_bit_s,omitzero"`
	// Bits a second received since the snapshot before.
	RxRate Value `json:"rx_bit_s,omitzero"`
}

// CPU is the CPU time of the instance's processes on the host since the previous
// snapshot, in percent of one core: more than 100 if several cores were used.
type CPU struct {
	// Of lklhost: the stack, and what carries the program's calls to it. Absent
	// with the engine preload, whose stack is part of the program.
	Stack *float64 `json:"stack_percent,omitempty"`
	// Of the program and all its children.
	Target *float64 `json:"target_percent,omitempty"`
}

// Totals are sums over an instance.
type Totals struct {
	// Bits a second sent by all interfaces but lo.
	TxRate Value `json:"tx_bit_s,omitzero"`
	// Bits a second received by all interfaces but lo.
	RxRate Value `json:"rx_bit_s,omitzero"`
	// TCP segments sent again since the stack booted (TcpRetransSegs).
	Retrans Value `json:"retrans,omitzero"`
	// TCP segments sent again, a second, since the snapshot before.
	RetransRate *float64 `json:"retrans_s,omitempty"`
	// Connections there are, also those that are not listed.
	Connections int `json:"connections"`
	// Connections that are not listed, because others are busier.
	Omitted int `json:"omitted"`
	// Subflows of MPTCP connections, of all there are.
	Subflows int `json:"subflows"`
}
