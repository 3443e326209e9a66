// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/netip"
	"time"

	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Reading is the state of a stack at one time.
type Reading struct {
	At           time.Time
	Conns        []live.Connection
	Ifaces       map[string]Iface // by name
	CPU          Usage
	Drops        []drops.Record // events since the previous reading; in the first one, all that the stack still has
	Opened       uint64         // TCP connections since the start of the stack
	Tracking     drops.Tracking
	TrackingMost uint64            // largest number of tracked connections (net.netfilter.nf_conntrack_max); 0: unknown
	Others       []sockdiag.Socket // TCP sockets that listen or are in TIME-WAIT
	Ports        [2]uint16         // first and last ephemeral port; 0: unknown
	UDP          []UDPSocket       // UDP sockets; none if the Watcher does not listen
	Datagrams    []Datagram        // since the previous reading
	NoRoute      []netip.Addr      // the program's name servers, if the stack has a route to none of them
	RouteErrors  uint64            // packets and connects since the start of the stack for which IP found no route
	RcvMost      uint64            // largest receive buffer that TCP chooses (net.ipv4.tcp_rmem); 0: unknown
}

// Iface is the state of an interface.
type Iface struct {
	Gateway          bool   // lklrun's gateway is behind it, and ends each TCP connection
	Qdisc            string // kind of its root queueing discipline
	Backlog          uint64 // bytes in it
	Drops            uint64 // packets that it has dropped
	Overlimits       uint64 // packets that it has delayed because of a rate
	TxBytes, RxBytes uint64
	Ways             [2]stacknet.Impairment // as set by lklctl path
}

// Usage is the CPU time used so far.
type Usage struct {
	Stack       time.Duration                    // the stack's thread, or the program that contains it
	StackWait   time.Duration                    // time for which that thread waited for a core
	Gateway     time.Duration                    // lklrun, and the kernels of its gateways
	GatewayWait time.Duration                    // time for which its threads waited for a core
	Target      time.Duration                    // the program and its children
	Threads     map[int]map[string]time.Duration // time for which the threads of a process ran or waited for a core, for processes with connections
	Stopped     map[int]bool                     // processes with connections that a signal has stopped
	Known       bool
	Inside      bool // the stack is a part of the program (preload)
}

// delta is the increase of a counter; 0 if it is unknown or restarted.
func delta(now, was sockdiag.Value) uint64 {
	if !now.Known || now.N < was.N {
		return 0
	}
	return now.N - was.N
}

// Recorded asks lklrun for the report about the run from its start. lklrun has one only if
// it was started with --explain.
const Recorded = rpc.Verb[struct{}, Report]("explain")

// recordedMost is the largest number of connections in an answer, which must fit into one
// frame.
const recordedMost = 20

// Shortened returns the report with the connections that fit into an answer.
func (r *Report) Shortened() Report {
	short := *r
	if n := len(r.Connections) - recordedMost; n > 0 {
		short.Connections = r.Connections[:recordedMost]
		short.Unseen += int64(n)
	}
	return short
}

// Datagram is a packet of UDP, or an ICMP error about one.
type Datagram struct {
	At            time.Time
	Local, Remote netip.AddrPort // of the socket in the stack
	Iface         string
	Out           bool       // sent by the stack
	Name          string     // the name in a DNS query
	Failure       string     // SERVFAIL or REFUSED, if it is such a DNS answer
	Error         string     // the ICMP error; empty: it is a datagram
	From          netip.Addr // sender of the ICMP error
}

// Await is what the threads that share a socket do.
type Await int

// Kinds of Await.
const (
	Elsewhere Await = iota // none waits for the socket
	Unknown                // the host does not tell, or the program contains the stack
	Events                 // one waits for this socket and for others, in epoll_wait(2)
	Receive                // one waits for this socket, in recv(2) or poll(2)
)

// UDPSocket is a UDP socket of a program.
type UDPSocket struct {
	sockdiag.Socket
	Await Await
}
