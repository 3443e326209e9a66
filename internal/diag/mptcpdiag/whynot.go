// SPDX-License-Identifier: Apache-2.0

// Package mptcpdiag explains why an MPTCP connection has no subflow over an interface, or is
// plain TCP. Explain works in three steps. It finds what each connection lacks, reads the
// data that the reasons depend on from the stack, and derives the reasons from that data
// by pure functions.
//
// Linux' in-kernel path manager tries each endpoint once per connection and does not
// record the result. The reasons are derived from the following sources, in this order:
//
//   - the sockets and their flags, which show which sides requested MPTCP;
//   - present links, addresses, endpoints, limits and routes;
//   - the path manager's events that lklrun has recorded since the start;
//   - the counters, which apply to the whole stack and not to one connection.
package mptcpdiag

import (
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Reason explains why a connection lacks a subflow or MPTCP.
type Reason struct {
	Code    Code   `json:"code"`              // stable identifier of the reason
	Iface   string `json:"iface,omitempty"`   // interface without a subflow; absent: the reason applies to the whole connection
	Address string `json:"address,omitempty"` // local address for subflows of the interface
	Text    string `json:"text"`              // description
	Remedy  string `json:"remedy,omitempty"`  // suggested remedy
}

// Code identifies a reason.
type Code string

// Gateway is the reason of both kinds: TCP of the stack ends at lklrun's gateway.
const Gateway Code = "gateway"

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
	Fallback     Code = "fallback" // several reasons are possible, or none is known
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

// Link is an interface of the stack other than lo.
type Link struct {
	stacknet.LinkState
	Addrs   []netip.Addr // addresses that a connection can use
	Gateway bool         // lklrun's gateway is behind it, and ends each TCP connection
	CLAT    bool         // it carries IPv4 over the IPv6-only network of another interface
}

// Route is the route of a subflow.
type Route struct {
	From, To netip.Addr
	IfIndex  int // interface index; 0: any
}

// stack is the known state of a stack and its connections.
type stack struct {
	Links      []Link
	Listens    map[uint16]bool     // ports of listening sockets
	MPTCPPeers map[netip.Addr]bool // peers that use MPTCP on another connection

	// The following data is read only if a connection lacks something: see needs.
	Endpoints []stacknet.Endpoint
	Userspace bool             // net.mptcp.pm_type is 1
	Retries   bool             // failed joins are retried (stacknet.JoinFile)
	Counters  map[string]int64 // MPTcpExt counters, by name without that prefix
	Past      *mptcpevent.Past // nil: no events were recorded
	NoRoute   map[Route]bool   // routes that do not exist
}

// newStack derives the state from the links, connections and listeners of a stack.
func newStack(links []Link, conns []sockdiag.Connection) *stack {
	s := &stack{Links: links, Listens: map[uint16]bool{}, MPTCPPeers: map[netip.Addr]bool{}, NoRoute: map[Route]bool{}}
	for i := range conns {
		c := &conns[i]
		switch {
		case c.State == sockdiag.Listen:
			s.Listens[c.Local.Port()] = true
		case c.MPTCP != nil && !c.MPTCP.Fallback && c.MPTCP.RemoteKey:
			s.MPTCPPeers[c.Remote.Addr().Unmap()] = true
		}
	}
	return s
}

// onlyGateways reports whether TCP ends at lklrun's gateway on each interface.
func (s *stack) onlyGateways() bool {
	return !slices.ContainsFunc(s.Links, func(l Link) bool { return !l.Gateway })
}

// gatewayOf returns the interface with lklrun's gateway that carries a plain TCP
// connection, or nil.
func (s *stack) gatewayOf(c *sockdiag.Connection) *Link {
	if l := s.over(&c.Socket); l != nil && l.Gateway {
		return l
	}
	return nil
}

// missingSubflows reports whether c is plain TCP. If it is not, missingSubflows returns the interfaces over
// which c has no subflow. A connection lacks nothing if it is starting, ending, or over
// loopback.
func (s *stack) missingSubflows(c *sockdiag.Connection) (mptcp bool, subflows []*Link) {
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

// needs lists the data that the reasons depend on, in addition to links and sockets.
type needs struct {
	counters  bool
	endpoints bool               // the endpoints and the settings of the path manager
	events    []mptcpevent.Token // connections whose events are needed
	routes    []netip.Addr       // peers to which routes are needed, from each endpoint
}

// needs returns the data that is necessary to explain what connections lack.
func (s *stack) needs(conns []sockdiag.Connection) (n needs) {
	for i := range conns {
		c := &conns[i]
		mptcp, subflows := s.missingSubflows(c)
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

// explain returns the reasons why c is plain TCP or, if it is not, why it has no subflow
// over each interface that lacks one.
func (s *stack) explain(c *sockdiag.Connection) (all []Reason) {
	mptcp, subflows := s.missingSubflows(c)
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

// passive reports whether the peer opened the connection.
func (s *stack) passive(c *sockdiag.Connection) bool {
	for i := range c.Subflows {
		if f := c.Subflows[i].Subflow; f != nil && f.Flags&sockdiag.FlagCapableLocal != 0 {
			return false
		}
	}
	return s.Listens[c.Local.Port()]
}

// count returns a counter's value, or 0 if the stack does not have the counter.
func (s *stack) count(name string) int64 { return s.Counters[name] }
