// SPDX-License-Identifier: Apache-2.0

// Package mptcpevent receives MPTCP events of a stack from the generic netlink group
// mptcp_pm_events, like `ip mptcp monitor`.
package mptcpevent

import (
	"fmt"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// Kind is the type of an event, by the name that `ip mptcp monitor` prints.
type Kind string

// The kinds of events, enum mptcp_event_type of include/uapi/linux/mptcp_pm.h.
const (
	Created         Kind = "CREATED"        // a connection; MP_CAPABLE was exchanged with the peer
	Established     Kind = "ESTABLISHED"    // subflows can join it from now on
	Closed          Kind = "CLOSED"         // the connection has ended
	Announced       Kind = "ANNOUNCED"      // the peer has announced an address (ADD_ADDR)
	Removed         Kind = "REMOVED"        // the peer has withdrawn an address (REMOVE_ADDR)
	SubEstablished  Kind = "SF_ESTABLISHED" // a subflow has joined
	SubClosed       Kind = "SF_CLOSED"      // a subflow has ended, or failed to join
	SubPriority     Kind = "SF_PRIO"        // a subflow became a backup, or is no longer one
	ListenerCreated Kind = "LISTENER_CREATED"
	ListenerClosed  Kind = "LISTENER_CLOSED"

	// Lost is specific to this package: events came faster than they were read, and
	// the stack dropped some.
	Lost Kind = "LOST"
)

// kinds are the commands of the messages.
var kinds = map[uint8]Kind{
	1: Created, 2: Established, 3: Closed, 6: Announced, 7: Removed, 10: SubEstablished,
	11: SubClosed, 13: SubPriority, 15: ListenerCreated, 16: ListenerClosed,
}

// Subflow reports whether the event is about one subflow.
func (k Kind) Subflow() bool { return k == SubEstablished || k == SubClosed || k == SubPriority }

// Token identifies a connection on its own side, like mptcpi_token.
type Token uint32

// String formats the token like ss(8) and ip-mptcp(8).
func (t Token) String() string { return fmt.Sprintf("%08x", uint32(t)) }

// MarshalText encodes the token in JSON in this form.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText decodes the output of MarshalText.
func (t *Token) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 32)
	if err != nil {
		return fmt.Errorf("token %q: %w", b, err)
	}
	*t = Token(n)
	return nil
}

// Event is one event. Values that it does not contain are absent.
type Event struct {
	Time        time.Time      `json:"time"`                    // time of reading, by the clock of the host
	Kind        Kind           `json:"event"`                   // event name as in `ip mptcp monitor`; LOST: events were lost
	Token       Token          `json:"token,omitzero"`          // connection token, eight hexadecimal digits; absent for listeners
	LocalID     *int           `json:"local_id,omitempty"`      // ID of the local address
	RemoteID    *int           `json:"remote_id,omitempty"`     // ID of the peer's address
	Local       netip.AddrPort `json:"local,omitzero"`          // local address and port
	Remote      netip.AddrPort `json:"remote,omitzero"`         // address and port of the peer; for ANNOUNCED: the announced address
	Backup      bool           `json:"backup,omitempty"`        // used only if no other subflow works
	Server      bool           `json:"server_side,omitempty"`   // the peer opened the connection
	DenyJoinID0 bool           `json:"deny_join_id0,omitempty"` // the peer rejects subflows to its initial address (RFC 8684, 3.1, flag C)
	IfIndex     int            `json:"ifindex,omitempty"`       // index of the interface that the subflow is bound to; 0: none

	Errno       syscall.Errno `json:"errno,omitempty"`        // error that ended the subflow: 111 refused, 110 timed out, 104 reset
	ResetReason *int          `json:"reset_reason,omitempty"` // reason of MP_TCPRST (RFC 8684, 3.6): 1 MPTCP, 2 resources, 3 prohibited, 4 too much data, 5 performance, 6 middlebox
}

// resetReasons are the codes of MP_TCPRST, RFC 8684, 3.6.
var resetReasons = [...]string{
	"unspecified", "MPTCP-specific error", "lack of resources", "administratively prohibited",
	"too much outstanding data", "unacceptable performance", "middlebox interference",
}

// ResetWords says why the peer has reset the subflow; "" if unknown.
func (e Event) ResetWords() string {
	switch {
	case e.ResetReason == nil:
		return ""
	case *e.ResetReason >= 0 && *e.ResetReason < len(resetReasons):
		return resetReasons[*e.ResetReason]
	}
	return fmt.Sprintf("reason %d", *e.ResetReason)
}
