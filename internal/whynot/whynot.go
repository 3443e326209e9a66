// SPDX-License-Identifier: Apache-2.0

// Package whynot says why an MPTCP connection has no subflow over an interface,
// and why it is plain TCP after all: pure functions over what Gather has read of
// the stack.
//
// Linux' in-kernel path manager tries each endpoint once for each connection and
// keeps no record of what became of it. What is told here comes from the sockets
// and their flags (which sides asked for MPTCP), from links, addresses, endpoints,
// limits and routes as they are, from what lklrun has heard of the path manager's
// events since the start, and last from the counters, which are the stack's and
// not the connection's.
package whynot

import (
	"net/netip"

	"github.com/lklrun/lklrun/internal/mptcpevent"
	"github.com/lklrun/lklrun/internal/sockdiag"
	"github.com/lklrun/lklrun/internal/stacknet"
)

// Reason is why something of a connection is missing.
type Reason struct {
	Code    Code   `json:"code"`              // the reason in one word, the same in all versions
	Iface   string `json:"iface,omitempty"`   // the interface without a subflow; absent: it concerns the whole connection
	Address string `json:"address,omitempty"` // its address that subflows would leave from
	Text    string `json:"text"`              // the reason
	Remedy  string `json:"remedy,omitempty"`  // what can be done about it
}

// Code names a reason.
type Code string

// The reasons for a connection that is plain TCP.
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

// The reasons for an interface without a subflow.
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

// Link is an interface of the stack's, not lo.
type Link struct {
	stacknet.LinkState
	Addrs []netip.Addr // those that a connection can use
}

// Route is a way that a subflow would take.
type Route struct {
	From, To netip.Addr
	IfIndex  int // 0: any
}

// Stack is what is known of a stack and its connections.
type Stack struct {
	Links     []Link
	Endpoints []stacknet.Endpoint
	Userspace bool             // net.mptcp.pm_type is 1
	Again     bool             // a join that fails is tried again (stacknet.JoinFile)
	Counters  map[string]int64 // of MPTcpExt, by their names without that
	Past      *mptcpevent.Past // nil: nobody has listened
	Listens   map[uint16]bool  // ports of listening sockets
	Speaks    map[netip.Addr]bool
	NoRoute   map[Route]bool // what no routing table leads to
}

// Explain returns why c is plain TCP, or, for each interface that carries no
// subflow of it, why that is. A connection that is beginning or ending has no
// reasons, nor has one of the loopback interface.
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

// carries says whether a subflow of c has got as far as to carry data over l.
func (s *Stack) carries(c *sockdiag.Connection, l *Link) bool {
	for i := range c.Subflows {
		f := &c.Subflows[i]
		if f.State != sockdiag.SynSent && f.State != sockdiag.Close && s.over(f) == l {
			return true
		}
	}
	return false
}

// over returns the interface that a subflow leaves by.
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

// passive says whether the peer has begun the connection.
func (s *Stack) passive(c *sockdiag.Connection) bool {
	for i := range c.Subflows {
		if f := c.Subflows[i].Subflow; f != nil && f.Flags&sockdiag.FlagCapableLocal != 0 {
			return false
		}
	}
	return s.Listens[c.Local.Port()]
}

// count is a counter's value; 0 also for one that the stack does not have.
func (s *Stack) count(name string) int64 { return s.Counters[name] }
