// SPDX-License-Identifier: Apache-2.0

// Package live monitors a running stack: its interfaces, its connections with their
// subflows, the rates of both, and the CPU time used. lklctl top and lklctl web show the
// result.
//
// A Collector takes a series of Snapshots over one connection. A Monitor uses one
// Collector per running instance. Numbers that the stack does not report are absent.
// Rates are absent in the first snapshot.
package live

import (
	"context"
	"slices"
	"time"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// MaxConnections is the maximum number of connections in a snapshot, which contains the
// busiest ones.
const MaxConnections = 200

// Value is a number that may be absent.
type Value = sockdiag.Value

// Snapshot is the state of an instance at one time.
type Snapshot struct {
	Time        time.Time    `json:"time"`                 // time of the snapshot
	Interval    float64      `json:"interval_s,omitempty"` // seconds since the previous snapshot, the basis of rates; absent in the first
	Instance    Instance     `json:"instance"`             // the instance
	CPU         CPU          `json:"cpu"`                  // CPU usage of the instance's processes
	Totals      Totals       `json:"totals"`               // totals of the instance
	Links       []Link       `json:"links"`                // interfaces of the stack, including lo, ordered by index; without the helper devices of lklctl path
	Connections []Connection `json:"connections"`          // TCP and MPTCP connections, busiest first, without listening sockets

	Others []sockdiag.Socket `json:"-"` // TCP sockets that listen or are in TIME-WAIT
}

// Instance identifies a run of lklrun.
type Instance struct {
	Name      string    `json:"name"`                 // instance name, as for lklctl -n
	Stack     string    `json:"stack"`                // stack name: mptcp, bbr, host, ...
	Release   string    `json:"release"`              // kernel release of the stack
	Engine    string    `json:"engine"`               // supervise, preload or trace
	Command   string    `json:"command"`              // command line of the program, quoted for a shell
	Pod       string    `json:"pod,omitempty"`        // pod that the instance serves, NAMESPACE/POD
	Started   time.Time `json:"started"`              // start time of lklrun
	PID       int       `json:"pid"`                  // process ID of lklrun
	TargetPID int       `json:"target_pid,omitempty"` // process ID of the program
}

// Link is an interface of the stack. Its counters start when the interface is created.
// Sent means sent by the stack, received means received by the stack.
type Link struct {
	Name      string   `json:"name"`                // interface name
	Index     int      `json:"index"`               // interface index
	State     string   `json:"state"`               // up, down or no carrier
	Addrs     []string `json:"addrs"`               // addresses, ADDRESS/PREFIX
	RxBytes   Value    `json:"rx_bytes,omitzero"`   // bytes received, with link-layer headers
	TxBytes   Value    `json:"tx_bytes,omitzero"`   // bytes sent, with link-layer headers
	RxPackets Value    `json:"rx_packets,omitzero"` // packets received
	TxPackets Value    `json:"tx_packets,omitzero"` // packets sent
	RxDropped Value    `json:"rx_dropped,omitzero"` // received packets dropped
	TxDropped Value    `json:"tx_dropped,omitzero"` // outgoing packets dropped
	RxRate    Value    `json:"rx_bit_s,omitzero"`   // bits per second received
	TxRate    Value    `json:"tx_bit_s,omitzero"`   // bits per second sent

	own bool // its traffic is not that of another interface, as that of a VLAN is
}

// Connection is a TCP or MPTCP connection. Its byte counts are those of the program: each
// byte counts once, even if several subflows carried it or TCP retransmitted it.
type Connection struct {
	ID            string    `json:"id"`                      // socket cookie in hexadecimal, unique in the stack
	Proto         string    `json:"proto"`                   // mptcp (also after fallback) or tcp
	State         string    `json:"state"`                   // socket state as in ss(8)
	Local         string    `json:"local"`                   // local address and port
	Remote        string    `json:"remote"`                  // address and port of the peer
	Process       string    `json:"process,omitempty"`       // name of the first process with the socket
	PID           int       `json:"pid,omitempty"`           // process ID of that process
	Token         string    `json:"token,omitempty"`         // local MPTCP token, eight hexadecimal digits
	Fallback      bool      `json:"fallback,omitempty"`      // the MPTCP connection fell back to plain TCP
	TxRate        Value     `json:"tx_bit_s,omitzero"`       // bits per second sent
	RxRate        Value     `json:"rx_bit_s,omitzero"`       // bits per second received
	BytesSent     Value     `json:"bytes_sent,omitzero"`     // bytes sent
	BytesReceived Value     `json:"bytes_received,omitzero"` // bytes received
	Retrans       Value     `json:"retrans,omitzero"`        // segments retransmitted by the present subflows
	Subflows      []Subflow `json:"subflows"`                // subflows; a TCP connection is listed as its own single subflow

	// Sockets are the connection and its subflows as reported by sock_diag. There, a
	// TCP connection has no subflows.
	Sockets sockdiag.Connection `json:"-"`
}

// Subflow is a TCP connection, which may be one of several that carry an MPTCP
// connection. Its byte counts are those of TCP: retransmitted bytes count again.
type Subflow struct {
	ID            string `json:"id"`                      // socket cookie in hexadecimal
	Iface         string `json:"iface,omitempty"`         // interface with the local address
	State         string `json:"state"`                   // socket state as in ss(8)
	Local         string `json:"local"`                   // local address and port
	Remote        string `json:"remote"`                  // address and port of the peer
	Backup        bool   `json:"backup"`                  // used only if no other subflow works
	RTT           Value  `json:"rtt_us,omitzero"`         // smoothed round-trip time in microseconds
	Cwnd          Value  `json:"cwnd,omitzero"`           // congestion window in segments
	Ssthresh      Value  `json:"ssthresh,omitzero"`       // slow-start threshold in segments; absent: not set
	PacingRate    Value  `json:"pacing_bit_s,omitzero"`   // pacing rate in bits per second
	BytesSent     Value  `json:"bytes_sent,omitzero"`     // bytes sent
	BytesReceived Value  `json:"bytes_received,omitzero"` // bytes received
	Retrans       Value  `json:"retrans,omitzero"`        // segments retransmitted
	TxRate        Value  `json:"tx_bit_s,omitzero"`       // bits per second sent
	RxRate        Value  `json:"rx_bit_s,omitzero"`       // bits per second received
}

// CPU is the CPU usage of the instance's processes on the host since the previous
// snapshot, in percent of one core. It exceeds 100 if the processes used several cores.
type CPU struct {
	Stack  *float64 `json:"stack_percent,omitempty"`  // CPU usage of lklhost in percent of one core; absent with the engine preload
	Target *float64 `json:"target_percent,omitempty"` // CPU usage of the program and its children in percent of one core
}

// Totals are sums over an instance.
type Totals struct {
	TxRate      Value    `json:"tx_bit_s,omitzero"`   // bits per second sent by all interfaces except lo and VLANs
	RxRate      Value    `json:"rx_bit_s,omitzero"`   // bits per second received by all interfaces except lo and VLANs
	Retrans     Value    `json:"retrans,omitzero"`    // TCP segments retransmitted since boot (TcpRetransSegs)
	RetransRate *float64 `json:"retrans_s,omitempty"` // TCP segments retransmitted per second
	Drops       Value    `json:"drops,omitzero"`      // packets that the stack dropped since boot, without frames for other machines; lklctl drops -s counts them by reason
	Resets      Value    `json:"resets,omitzero"`     // TCP resets that the stack sent or received since boot
	OpenedRate  *float64 `json:"opened_s,omitempty"`  // TCP connections and subflows begun per second, by both sides
	Connections int      `json:"connections"`         // number of connections, including omitted ones
	Omitted     int      `json:"omitted"`             // number of connections that are not listed
	Subflows    int      `json:"subflows"`            // number of MPTCP subflows
}

// Kill aborts a connection, or only the subflow with the given ID.
func Kill(ctx context.Context, conn *stackconn.Conn, c *Connection, subflow string) error {
	sockets := c.Carriers()
	if subflow != "" {
		sockets = slices.DeleteFunc(sockets, func(s sockdiag.Socket) bool { return id(s) != subflow })
	}
	return sockdiag.Destroy(ctx, conn, sockets)
}
