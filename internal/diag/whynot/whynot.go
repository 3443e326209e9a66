// SPDX-License-Identifier: Apache-2.0

// Package whynot explains why an MPTCP connection has no subflow over an interface, or is
// plain TCP. Explain works in three steps: it finds what each connection lacks, reads from
// the stack what the reasons depend on, and derives the reasons by pure functions over
// that data.
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
	Code    Code   `json:"code"`              // stable identifier of the reason
	Iface   string `json:"iface,omitempty"`   // interface without a subflow; absent: the whole connection is concerned
	Address string `json:"address,omitempty"` // local address for subflows of the interface
	Text    string `json:"text"`              // description
	Remedy  string `json:"remedy,omitempty"`  // suggested remedy
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

// stack is the known state of a stack and its connections.
type stack struct {
	Links   []Link
	Listens map[uint16]bool     // ports of listening sockets
	Speaks  map[netip.Addr]bool // peers that have MPTCP with a connection

	// These are read if a connection lacks something: see needs.
	Endpoints []stacknet.Endpoint
	Userspace bool             // net.mptcp.pm_type is 1
	Again     bool             // a failed join is tried again (stacknet.JoinFile)
	Counters  map[string]int64 // MPTcpExt counters, by their names without that prefix
	Past      *mptcpevent.Past // nil: no events were recorded
	NoRoute   map[Route]bool   // routes that do not exist
}

// newStack returns what the links and all connections and listeners of a stack tell.
func newStack(links []Link, conns []sockdiag.Connection) *stack {
	s := &stack{Links: links, Listens: map[uint16]bool{}, Speaks: map[netip.Addr]bool{}, NoRoute: map[Route]bool{}}
	for i := range conns {
		c := &conns[i]
		switch {
		case c.State == sockdiag.Listen:
			s.Listens[c.Local.Port()] = true
		case c.MPTCP != nil && !c.MPTCP.Fallback && c.MPTCP.RemoteKey:
			s.Speaks[c.Remote.Addr().Unmap()] = true
		}
	}
	return s
}

// lacks reports whether c is plain TCP and, if not, the interfaces over which it has no
// subflow. Connections that are starting or ending, and those over loopback, lack nothing.
func (s *stack) lacks(c *sockdiag.Connection) (mptcp bool, subflows []*Link) {
	if c.State != sockdiag.Established && c.State != sockdiag.CloseWait || c.MPTCP == nil || c.Remote.Addr().Unmap().IsLoopback() {
		return false, nil
	}
	if c.MPTCP.Fallback {
		return true, nil
	}
	for i := range s.Links {
		if l := &s.Links[i]; !s.carries(c, l) {
			subflows = append(subflows, l)
		}
	}
	return false, subflows
}

// needs is the data, besides links and sockets, that the reasons depend on.
type needs struct {
	counters  bool
	endpoints bool               // and the settings of the path manager
	events    []mptcpevent.Token // the connections whose events are needed
	routes    []netip.Addr       // the peers to which routes are needed, from each endpoint
}

// needs returns what has to be read to explain what connections lack.
func (s *stack) needs(conns []sockdiag.Connection) (n needs) {
	for i := range conns {
		c := &conns[i]
		mptcp, subflows := s.lacks(c)
		n.counters = n.counters || mptcp || len(subflows) > 0
		if len(subflows) == 0 {
			continue
		}
		n.endpoints = true
		if c.MPTCP.Token.Known {
			n.events = append(n.events, mptcpevent.Token(c.MPTCP.Token.N))
		}
		n.routes = append(n.routes, c.Remote.Addr().Unmap())
		for k := range c.Subflows {
			if f := &c.Subflows[k]; f.State == sockdiag.SynSent {
				n.routes = append(n.routes, f.Remote.Addr().Unmap())
			}
		}
	}
	return n
}

// explain returns why c is plain TCP or, for each interface without a subflow, the reason.
func (s *stack) explain(c *sockdiag.Connection) (all []Reason) {
	mptcp, subflows := s.lacks(c)
	if mptcp {
		return []Reason{s.fallback(c)}
	}
	for _, l := range subflows {
		all = append(all, s.missing(c, l))
	}
	return all
}

// carries reports whether c has a subflow over l that can carry data.
func (s *stack) carries(c *sockdiag.Connection, l *Link) bool {
	for i := range c.Subflows {
		f := &c.Subflows[i]
		if f.State != sockdiag.SynSent && f.State != sockdiag.Close && s.over(f) == l {
			return true
		}
	}
	return false
}

// over returns the outgoing interface of a subflow.
func (s *stack) over(f *sockdiag.Socket) *Link {
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
func (s *stack) passive(c *sockdiag.Connection) bool {
	for i := range c.Subflows {
		if f := c.Subflows[i].Subflow; f != nil && f.Flags&sockdiag.FlagCapableLocal != 0 {
			return false
		}
	}
	return s.Listens[c.Local.Port()]
}

// count is a counter's value; 0 if the stack does not have it.
func (s *stack) count(name string) int64 { return s.Counters[name] }
