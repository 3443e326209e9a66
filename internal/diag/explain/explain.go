// SPDX-License-Identifier: Apache-2.0

// Package explain finds what limits the connections of a stack: the program, a buffer, a
// window, loss, the rate of a path, the CPU or the gateway.
//
// A Watcher reads the state of a stack several times. A Judge receives these readings. It
// assigns each interval between two of them to the limits that applied, and reports their
// shares. It only computes, so tests can judge made-up readings.
//
// The shares of the send buffer and of the peer's window are those that the kernel measures
// (tcpi_busy_time, tcpi_sndbuf_limited, tcpi_rwnd_limited). The rest of the time with data
// in flight is assigned by the state at the end of the interval.
package explain

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/diag/mptcpdiag"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// Code identifies a limit.
type Code string

// Limits of a connection.
const (
	Idle          Code = "idle"              // no data in either direction
	Program       Code = "program"           // the program sends no more
	Reader        Code = "program-reads"     // the program reads too slowly
	SendBuffer    Code = "send-buffer"       // the program's send buffer is full
	ReceiveBuffer Code = "receive-buffer"    // the window that this side advertises
	PeerWindow    Code = "peer-window"       // the window that the peer advertises
	Peer          Code = "peer"              // the peer sends no more
	Congestion    Code = "congestion-window" // without loss, as at the start
	Pacing        Code = "pacing"            // SO_MAX_PACING_RATE, or fq
	Loss          Code = "loss"              // lost packets
	PathRate      Code = "path-rate"         // a queue is full
	SlowPath      Code = "slow-path"         // an MPTCP subflow that holds back the others
	CPU           Code = "cpu"               // CPU time of the stack
	Gateway       Code = "gateway"           // lklrun's gateway, or the host's connection behind it
	Unanswered    Code = "syn-unanswered"    // the peer does not answer the SYN, or the answer to its SYN
	OwnDrop       Code = "stack-drops"       // the stack drops the packets of the connection
	Silent        Code = "peer-silent"       // the peer has stopped acknowledging data
	PathMTU       Code = "path-mtu"          // large packets are lost without an ICMP error
	Nagle         Code = "nagle"             // small writes wait for delayed acknowledgements
	Answer        Code = "peer-answer"       // the peer owes an answer, or there is no more to send
	Stopped       Code = "program-stopped"   // a signal has stopped the program
)

// Causes in the stack.
const (
	ListenerFull  Code = "listener-full"  // a listener's queue
	ConntrackFull Code = "conntrack-full" // the table of connection tracking
	Ports         Code = "ports"          // no ephemeral port is left
)

// Causes over UDP.
const (
	NameServer Code = "name-server" // a name server does not answer, or not usefully
	Datagrams  Code = "udp-answer"  // no answer to datagrams
)

// Directions of a connection's data.
const (
	Sends    = "send"
	Receives = "receive"
)

// Report explains the connections of a run.
type Report struct {
	Instance    string       `json:"instance"`    // instance name
	Seconds     float64      `json:"seconds"`     // length of the observation
	Text        string       `json:"text"`        // the findings, or the explanation of the first connection
	Findings    []Finding    `json:"findings"`    // causes that affect the stack, or a program's use of UDP, and not one connection alone
	Connections []Connection `json:"connections"` // connections that existed during the observation, those with the most data first, idle ones last
	Unseen      int64        `json:"unseen"`      // connections that began and ended between two readings, or were omitted

	udp bool // UDP was observed
}

// Connection explains one connection.
type Connection struct {
	Proto         string             `json:"proto"`             // tcp, or mptcp (also after fallback)
	Local         string             `json:"local"`             // local address and port
	Remote        string             `json:"remote"`            // address and port of the peer
	Process       string             `json:"process,omitempty"` // process that has the socket
	PID           int                `json:"pid,omitempty"`     // its ID on the host
	Token         string             `json:"token,omitempty"`   // local MPTCP token
	Interfaces    []string           `json:"interfaces"`        // interfaces of the connection, or of its subflows
	Direction     string             `json:"direction"`         // send or receive: the direction of most data, to which the limits apply
	Seconds       float64            `json:"seconds"`           // time for which the connection was observed
	BytesSent     uint64             `json:"bytes_sent"`        // bytes sent during that time
	BytesReceived uint64             `json:"bytes_received"`    // bytes received during that time
	Rate          uint64             `json:"bit_s"`             // average rate in the direction, in bits per second
	Limits        []Limit            `json:"limits"`            // limits by their share, the largest first
	Text          string             `json:"text"`              // explanation in sentences
	WhyNot        []mptcpdiag.Reason `json:"why_not,omitempty"` // reasons for missing subflows or plain TCP

	Cookie uint64 `json:"cookie"` // unique ID of the socket in the stack
	socket live.Connection
}

// Limit is one limit of a connection.
type Limit struct {
	Code      Code     `json:"code"`                // stable identifier of the limit
	Share     float64  `json:"share"`               // part of the time, from 0 to 1
	Interface string   `json:"interface,omitempty"` // interface where it applies
	Evidence  []string `json:"evidence"`            // observations that show it
	Remedy    []string `json:"remedy,omitempty"`    // suggested changes
}

// names are the limits in sentences and tables.
var names = map[Code]string{
	Idle: "idle", Program: "the program", Reader: "reading by the program", SendBuffer: "the send buffer",
	ReceiveBuffer: "the receive buffer", PeerWindow: "the peer's window", Peer: "the peer", Congestion: "the congestion window",
	Pacing: "pacing", Loss: "packet loss", PathRate: "the path's rate", SlowPath: "a slow path", CPU: "the CPU", Gateway: "the gateway",
	Unanswered: "no answer to the SYN", OwnDrop: "the stack's drops", Silent: "the peer is silent", PathMTU: "the path's MTU", Nagle: "Nagle's algorithm", Answer: "the peer's answer", Stopped: "a stopped program",
}

// Name returns the name of the limit for tables.
func (l *Limit) Name() string { return names[l.Code] }

// Socket returns the socket of the connection, to which filters apply. A report that another
// process made has only its addresses.
func (c *Connection) Socket() sockdiag.Socket {
	s := c.socket.Sockets.Socket
	if s.Proto != "" {
		return s
	}
	s.Proto, s.State = sockdiag.Proto(c.Proto), sockdiag.Established
	s.Local, _ = netip.ParseAddrPort(c.Local)   // invalid addresses match no filter
	s.Remote, _ = netip.ParseAddrPort(c.Remote) // as above
	s.Family = unix.AF_INET
	if s.Remote.Addr().Is6() {
		s.Family = unix.AF_INET6
	}
	if len(c.Interfaces) > 0 {
		s.Iface = c.Interfaces[0]
	}
	return s
}
