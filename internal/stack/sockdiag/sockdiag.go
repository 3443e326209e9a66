// SPDX-License-Identifier: Apache-2.0

// Package sockdiag lists the sockets of a stack through sock_diag(7) and decodes what the
// kernel reports of each (struct tcp_info, struct mptcp_info, the MPTCP subflow
// attributes). It joins subflows to their connections and finds the processes of sockets.
//
// The structures have grown with every kernel. They are decoded up to their length:
// values that a stack does not report are absent, not zero.
package sockdiag

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
)

// Value is a number that may be absent.
type Value struct {
	N     uint64
	Known bool
}

// Known makes a value that is known.
func Known(n uint64) Value { return Value{n, true} }

// IsZero reports whether the value is absent; encoding/json's omitzero calls it.
func (v Value) IsZero() bool { return !v.Known }

// MarshalJSON writes the number, or null.
func (v Value) MarshalJSON() ([]byte, error) {
	if !v.Known {
		return []byte("null"), nil
	}
	return strconv.AppendUint(nil, v.N, 10), nil
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (v *Value) UnmarshalJSON(b []byte) error {
	var n *uint64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*v = Value{}
	if n != nil {
		*v = Known(*n)
	}
	return nil
}

// State is the state of a socket, TCP_* of include/net/tcp_states.h. Other protocols use
// the same numbers.
type State uint8

// States that code here refers to.
const (
	Established State = 1
	SynSent     State = 2
	SynRecv     State = 3
	TimeWait    State = 6
	Close       State = 7 // not connected, for protocols without connections
	CloseWait   State = 8
	Listen      State = 10

	finWait1 State = 4
	lastAck  State = 9
	closing  State = 11
)

// stateNames are the names that ss(8) uses.
var stateNames = [...]string{
	1: "ESTAB", 2: "SYN-SENT", 3: "SYN-RECV", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2",
	6: "TIME-WAIT", 7: "UNCONN", 8: "CLOSE-WAIT", 9: "LAST-ACK", 10: "LISTEN",
	11: "CLOSING", 12: "NEW-SYN-RECV", 13: "BOUND-INACTIVE",
}

// String returns the state's name as ss(8) prints it.
func (s State) String() string {
	if int(s) < len(stateNames) && stateNames[s] != "" {
		return stateNames[s]
	}
	return fmt.Sprintf("STATE-%d", uint8(s))
}

// Closing reports whether this side has closed the socket and the peer has not yet
// acknowledged that.
func (s State) Closing() bool { return s == finWait1 || s == closing || s == lastAck }

// MarshalText encodes the state in JSON by its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes the output of MarshalText.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if name != "" && name == string(b) {
			*s = State(i)
			return nil
		}
	}
	var n uint8
	if _, err := fmt.Sscanf(string(b), "STATE-%d", &n); err != nil {
		return fmt.Errorf("unknown socket state %q", b)
	}
	*s = State(n)
	return nil
}

// Proto is a kind of socket, by its name in netstat.
type Proto string

// The kinds of sockets that can be listed.
const (
	TCP     Proto = "tcp"
	UDP     Proto = "udp"
	UDPLite Proto = "udplite"
	Raw     Proto = "raw"
	ICMP    Proto = "icmp" // of unprivileged ping(8); includes ICMPv6
	MPTCP   Proto = "mptcp"
	Unix    Proto = "unix"
	Packet  Proto = "packet"
	Netlink Proto = "netlink"
)

// Socket is one socket of a stack.
type Socket struct {
	Proto  Proto  `json:"proto"`          // tcp, udp, udplite, raw, icmp, mptcp, unix, packet or netlink
	Type   string `json:"type,omitempty"` // of unix, packet and netlink sockets: stream, dgram, raw, seqpacket
	Family int    `json:"family"`         // unix.AF_*
	State  State  `json:"state"`          // as ss(8) writes it: ESTAB, LISTEN, UNCONN, ...

	Local  netip.AddrPort `json:"local,omitzero"`
	Remote netip.AddrPort `json:"remote,omitzero"`
	Name   string         `json:"name,omitempty"` // of unix sockets: the path, @ before an abstract one; of packet and netlink sockets: the protocol

	// Packet sockets: ETH_P_*, 3 for all; netlink sockets: NETLINK_*.
	Protocol Value `json:"protocol,omitzero"`
	PortID   Value `json:"port_id,omitzero"` // of a netlink socket: its address; 0 is the kernel's
	Peer     Value `json:"peer,omitzero"`    // of a unix socket: the inode of the one it is connected to; of a netlink socket: the port_id

	RecvQ Value `json:"recv_q,omitzero"` // bytes not yet read by the program; of a listening socket: connections waiting to be accepted
	SendQ Value `json:"send_q,omitzero"` // bytes not yet acknowledged by the peer; of a listening socket: its backlog

	UID      Value  `json:"uid,omitzero"`       // the user's who made it
	Inode    uint64 `json:"inode"`              // in the stack; 0: belongs to no file
	Cookie   uint64 `json:"cookie"`             // unique in the stack; 0: the kernel did not tell
	IfIndex  int    `json:"ifindex"`            // of the interface it is bound to; 0: none
	Iface    string `json:"iface,omitempty"`    // the interface it is bound to, or else the one that has its local address
	Mark     Value  `json:"mark,omitzero"`      // SO_MARK
	CgroupID Value  `json:"cgroup_id,omitzero"` // of control groups, version 2
	TOS      Value  `json:"tos,omitzero"`       // IPv4's type of service, with ECN's two bits
	TClass   Value  `json:"tclass,omitzero"`    // IPv6's traffic class
	Shutdown string `json:"shutdown,omitempty"` // rcv, snd or both: directions that shutdown(2) has ended
	V6Only   bool   `json:"v6only,omitempty"`   // an IPv6 socket that refuses IPv4

	// The port was chosen by the kernel; told by MarkAutobound alone.
	Autobound bool `json:"autobound,omitempty"`

	Timer  *Timer   `json:"timer,omitempty"` // the one that runs
	Memory *MemInfo `json:"skmem,omitempty"` // bytes of memory it has

	Congestion string     `json:"congestion,omitempty"` // the congestion control: cubic, bbr, ...
	TCP        *TCPInfo   `json:"tcp_info,omitempty"`   // of TCP sockets
	BBR        *BBRInfo   `json:"bbr_info,omitempty"`   // where bbr is the congestion control
	Vegas      *VegasInfo `json:"vegas_info,omitempty"` // where it is vegas, yeah, nv, illinois or westwood
	DCTCP      *DCTCPInfo `json:"dctcp_info,omitempty"` // where it is dctcp
	MPTCP      *MPTCPInfo `json:"mptcp_info,omitempty"` // of MPTCP sockets
	Subflow    *Subflow   `json:"subflow,omitempty"`    // of TCP sockets that are part of an MPTCP connection

	Processes []Process `json:"processes,omitempty"` // that have it open
}

// structure reads numbers from a C structure that may end early.
type structure []byte

func (s structure) u8(off uintptr) Value {
	if uintptr(len(s)) < off+1 {
		return Value{}
	}
	return Known(uint64(s[off]))
}

func (s structure) u16(off uintptr) Value {
	if uintptr(len(s)) < off+2 {
		return Value{}
	}
	return Known(uint64(binary.NativeEndian.Uint16(s[off:])))
}

func (s structure) u32(off uintptr) Value {
	if uintptr(len(s)) < off+4 {
		return Value{}
	}
	return Known(uint64(binary.NativeEndian.Uint32(s[off:])))
}

func (s structure) u64(off uintptr) Value {
	if uintptr(len(s)) < off+8 {
		return Value{}
	}
	return Known(binary.NativeEndian.Uint64(s[off:]))
}
