// SPDX-License-Identifier: Apache-2.0

// Package whynot explains why an MPTCP connection has no subflow over an interface, or is
// plain TCP. It consists of pure functions over the data that Gather has read from the
// stack.
//
// Linux' in-kernel path manager tries each endpoint once for each connection and does not
// record the result. The reasons are derived from, in this order:
//
// - the sockets and their flags (which sides asked for MPTCP);
// - present links, addresses, endpoints, limits and routes;
// - the path manager's events that lklrun has recorded since the start;
// - the counters, which apply to the stack and not to the connection.
package whynot

import (
	"net/netip"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Reason explains what a connection lacks.
type Reason struct {
	Code    Code   `json:"code"`              // the reason in one word, the same in all versions
	Iface   string `json:"iface,omitempty"`   // the interface without a subflow; absent: it concerns the whole connection
	Address string `json:"address,omitempty"` // its address that subflows would leave from
	Text    string `json:"text"`              // the reason
	Remedy  string `json:"remedy,omitempty"`  // what can be done about it
}

// Code identifies a reason.
type Code string

// Reasons why a connection is plain TCP.
const (
	NoCapable    Code = "peer-without-mptcp-or-option-stripped"
	Stripped     Code = "option-stripped"
	SynDropped   Code = "syn-dropped"
	Disabled     Code = "blackhole-disabled"
	DataStripped Code = "data-option-stripped"
	BadChecksum  Code = "checksum"
	Infinite     Code = "infinite-mapping"
	Corrupt      Code = "dss-corruption"
	NoToken      Code = "no-token"
	MD5          Code = "tcp-md5"
	Simultaneous Code = "simultaneous-connect"
	Fallback     Code = "fallback" // several are possible, or none is known
)

// Reasons why an interface has no subflow.
const (
	Down         Code = "interface-down"
	NoCarrier    Code = "no-carrier"
	NoAddress    Code = "no-address"
	OtherFamily  Code = "other-address-family"
	Userspace    Code = "userspace-path-manager"
	NoEndpoint   Code = "no-endpoint"
	EndpointGone Code = "endpoint-deleted"
	SignalOnly   Code = "endpoint-signal-only"
	NotSignalled Code = "not-announced"
	NotAccepted  Code = "announced-not-used"
	NotYet       Code = "not-established-yet"
	Limit        Code = "limit-subflows"
	DenyID0      Code = "peer-denies-initial-address"
	NoRoute      Code = "no-route"
	Joining      Code = "joining"
	Unanswered   Code = "join-unanswered"
	Refused      Code = "join-refused"
	TimedOut     Code = "join-timed-out"
	Unreachable  Code = "join-unreachable"
	JoinStripped Code = "join-option-stripped"
	BadHMAC      Code = "join-hmac"
	PeerLimit    Code = "peer-refuses-subflows"
	Ended        Code = "subflow-ended"
	ConnectError Code = "join-not-sent"
	Unknown      Code = "unknown"
)

// Link is an interface of the stack, except lo.
type Link struct {
	stacknet.LinkState
	Addrs []netip.Addr // addresses that a connection can use
}

// Route is the route of a subflow.
type Route struct {
	From, To netip.Addr
	IfIndex  int // 0: any
}

// Stack is the known state of a stack and its connections.
type Stack struct {
	Links     []Link
	Endpoints []stacknet.Endpoint
	Userspace bool             // net.mptcp.pm_type is 1
	Again     bool             // a failed join is tried again (stacknet.JoinFile)
	Counters  map[string]int64 // MPTcpExt counters, by their names without that prefix
	Past      *mptcpevent.Past // nil: no events were recorded
	Listens   map[uint16]bool  // ports of listening sockets
	Speaks    map[netip.Addr]bool
	NoRoute   map[Route]bool // routes that do not exist
}

// Explain returns why c is plain TCP or, for each interface without a subflow, the
// reason. Connections that are starting or ending, and those over loopback, have no
// reasons.
func (s *Stack) Explain(c *sockdiag.Connection) []Reason {
	if c.State != sockdiag.Established && c.State != sockdiag.CloseWait || c.MPTCP == nil || c.Remote.Addr().Unmap().IsLoopback() {
		return nil
	}
	if c.MPTCP.Fallback {
		return []Reason{s.fallback(c)}
	}
	var all []Reason
	for i := range s.Links {
		if l := &s.Links[i]; !s.carries(c, l) {
			all = append(all, s.missing(c, l))
		}
	}
	return all
}

// carries reports whether c has a subflow over l that can carry data.
func (s *Stack) carries(c *sockdiag.Connection, l *Link) bool {
	for i := range c.Subflows {
		f := &c.Subflows[i]
		if f.State != sockdiag.SynSent && f.State != sockdiag.Close && s.over(f) == l {
			return true
		}
	}
	return false
}

// over returns the outgoing interface of a subflow.
func (s *Stack) over(f *sockdiag.Socket) *Link {
	var by *Link
	for i := range s.Links {
		l := &s.Links[i]
		if f.IfIndex == l.Index {
			return l
		}
		for _, a := range l.Addrs {
			if a == f.Local.Addr().Unmap() && by == nil {
				by = l
			}
		}
	}
	return by
}

// passive reports whether the peer has started the connection.
func (s *Stack) passive(c *sockdiag.Connection) bool {
	for i := range c.Subflows {
		if f := c.Subflows[i].Subflow; f != nil && f.Flags&sockdiag.FlagCapableLocal != 0 {
			return false
		}
	}
	return s.Listens[c.Local.Port()]
}

// count is a counter's value; 0 if the stack does not have it.
func (s *Stack) count(name string) int64 { return s.Counters[name] }
