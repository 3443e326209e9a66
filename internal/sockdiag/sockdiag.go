// SPDX-License-Identifier: Apache-2.0

// Package sockdiag lists the sockets of a stack through sock_diag(7), decodes
// what the kernel tells of each (struct tcp_info, struct mptcp_info, the MPTCP
// subflow attributes), joins subflows to their connections, and finds the
// processes whose sockets they are.
//
// The structures have grown with every kernel. They are decoded as far as they
// reach: what a stack does not tell is absent, not zero.
package sockdiag

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
)

// Value is a number that a stack may or may not tell.
type Value struct {
	N     uint64
	Known bool
}

// Known makes a value that is known.
func Known(n uint64) Value { return Value{n, true} }

// IsZero says that the value is absent; encoding/json's omitzero asks for it.
func (v Value) IsZero() bool { return !v.Known }

// MarshalJSON writes the number, or null.
func (v Value) MarshalJSON() ([]byte, error) {
	if !v.Known {
		return []byte("null"), nil
	}
	return strconv.AppendUint(nil, v.N, 10), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
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

// State is the state of a socket, TCP_* of include/net/tcp_states.h, which
// other protocols borrow.
type State uint8

// The states that are asked for by name.
const (
	Established State = 1
	TimeWait    State = 6
	Close       State = 7 // what is not connected, of protocols without connections
	Listen      State = 10

	finWait1 State = 4
	lastAck  State = 9
	closing  State = 11
)

// stateNames are ss(8)'s.
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

// Closing says that the socket has been closed on this side, and its peer is yet
// to say that it knows.
func (s State) Closing() bool { return s == finWait1 || s == closing || s == lastAck }

// MarshalText makes the name the state's form in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if name != "" && name == string(b) {
			*s = State(i)
			return nil
		}
	}
	var n uint8
	if _, err := fmt.Sscanf(string(b), "STATE-%d", &n); err != nil {
		return fmt.Errorf("socket state %q is not known", b)
	}
	*s = State(n)
	return nil
}

// Proto is a kind of socket, under the name that netstat shows.
type Proto string

// The kinds of sockets that can be listed.
const (
	TCP    Proto = "tcp"
	UDP    Proto = "udp"
	Raw    Proto = "raw"
	MPTCP  Proto = "mptcp"
	Unix   Proto = "unix"
	Packet Proto = "packet"
)

// Socket is one socket of a stack.
type Socket struct {
	Proto  Proto `json:"proto"`
	Family int   `json:"family"` // unix.AF_*
	State  State `json:"state"`

	Local  netip.AddrPort `json:"local,omitzero"`
	Remote netip.AddrPort `json:"remote,omitzero"`
	Name   string         `json:"name,omitempty"` // of unix and packet sockets

	RecvQ Value `json:"recv_q,omitzero"` // of a listening socket: waiting to be accepted
	SendQ Value `json:"send_q,omitzero"` // of a listening socket: its backlog

	UID     Value  `json:"uid,omitzero"`
	Inode   uint64 `json:"inode"`   // 0: belongs to no file
	Cookie  uint64 `json:"cookie"`  // unique in the stack
	IfIndex int    `json:"ifindex"` // it is bound to; 0: none
	Iface   string `json:"iface,omitempty"`

	// IPv6 sockets: whether they refuse IPv4.
	V6Only bool `json:"v6only,omitempty"`

	Congestion string     `json:"congestion,omitempty"`
	TCP        *TCPInfo   `json:"tcp_info,omitempty"`
	MPTCP      *MPTCPInfo `json:"mptcp_info,omitempty"`
	Subflow    *Subflow   `json:"subflow,omitempty"` // TCP sockets that are part of an MPTCP connection

	Processes []Process `json:"processes,omitempty"`
}

// structure reads numbers from a C structure that may end early.
type structure []byte

func (s structure) u8(off uintptr) Value {
	if uintptr(len(s)) < off+1 {
		return Value{}
	}
	return Known(uint64(s[off]))
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
