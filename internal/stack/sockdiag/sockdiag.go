// SPDX-License-Identifier: Apache-2.0

// Package sockdiag lists the sockets of a stack through sock_diag(7) and decodes the
// kernel's data about each socket (struct tcp_info, struct mptcp_info, the MPTCP subflow
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

// Known returns a value that is known.
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

// The states that this package refers to.
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
	Type   string `json:"type,omitempty"` // socket type of unix, packet and netlink sockets: stream, dgram, raw, seqpacket
	Family int    `json:"family"`         // address family, unix.AF_*
	State  State  `json:"state"`          // state as in ss(8): ESTAB, LISTEN, UNCONN, ...

	Local  netip.AddrPort `json:"local,omitzero"`
	Remote netip.AddrPort `json:"remote,omitzero"`
	Name   string         `json:"name,omitempty"` // path of a unix socket, @ for an abstract one; protocol of a packet or netlink socket

	Protocol Value `json:"protocol,omitzero"` // ETH_P_* of a packet socket (3: all); NETLINK_* of a netlink socket
	PortID   Value `json:"port_id,omitzero"`  // address of a netlink socket; 0: the kernel
	Peer     Value `json:"peer,omitzero"`     // inode of the connected unix socket; port_id of the netlink peer

	RecvQ Value `json:"recv_q,omitzero"` // bytes not yet read by the program; for listening sockets: connections waiting for accept
	SendQ Value `json:"send_q,omitzero"` // bytes not yet acknowledged by the peer; for listening sockets: backlog

	UID      Value  `json:"uid,omitzero"`       // user ID of the creator
	Inode    uint64 `json:"inode"`              // inode in the stack; 0: no file
	Cookie   uint64 `json:"cookie"`             // unique ID in the stack; 0: unknown
	IfIndex  int    `json:"ifindex"`            // index of the bound interface; 0: none
	Iface    string `json:"iface,omitempty"`    // the interface it is bound to, or else the one that has its local address
	Mark     Value  `json:"mark,omitzero"`      // SO_MARK
	CgroupID Value  `json:"cgroup_id,omitzero"` // control group ID (version 2)
	TOS      Value  `json:"tos,omitzero"`       // IPv4 type of service, including ECN bits
	TClass   Value  `json:"tclass,omitzero"`    // IPv6 traffic class
	Shutdown string `json:"shutdown,omitempty"` // closed directions: rcv, snd or both
	V6Only   bool   `json:"v6only,omitempty"`   // IPV6_V6ONLY

	Timer  *Timer   `json:"timer,omitempty"` // running timer
	Memory *MemInfo `json:"skmem,omitempty"` // memory usage in bytes

	Congestion string     `json:"congestion,omitempty"` // congestion control algorithm
	TCP        *TCPInfo   `json:"tcp_info,omitempty"`   // state of a TCP socket
	BBR        *BBRInfo   `json:"bbr_info,omitempty"`   // state of the congestion control bbr
	Vegas      *VegasInfo `json:"vegas_info,omitempty"` // state of the congestion controls vegas, yeah, nv, illinois and westwood
	DCTCP      *DCTCPInfo `json:"dctcp_info,omitempty"` // state of the congestion control dctcp
	MPTCP      *MPTCPInfo `json:"mptcp_info,omitempty"` // state of an MPTCP socket
	Subflow    *Subflow   `json:"subflow,omitempty"`    // state of an MPTCP subflow

	Processes []Process `json:"processes,omitempty"` // processes with the socket open
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
