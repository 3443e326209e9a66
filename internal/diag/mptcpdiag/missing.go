// SPDX-License-Identifier: Apache-2.0

package mptcpdiag

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// missing explains why c has no subflow over l. It first checks for reasons that exclude
// all later ones, in this order: the interface, the address, the endpoint, the result of
// a join.
func (s *stack) missing(c *sockdiag.Connection, l *Link) Reason {
	r := Reason{Iface: l.Name}
	switch {
	case l.Gateway:
		return r.because(Gateway, "TCP ends at lklrun's gateway there, so the peer cannot get a subflow", "to use this path, replace --if user by --if tap:NAME,nat or --if raw:DEV")
	case !l.Up():
		return r.because(Down, "the interface is down", "lklctl link set %s up", l.Name)
	case !l.Carries():
		return r.because(NoCarrier, "the interface has no carrier", "")
	case len(l.Addrs) == 0:
		return r.because(NoAddress, "the interface has no usable address", "lklctl addr add ADDRESS/PREFIX %s", l.Name)
	case s.Userspace:
		r.Address = l.Addrs[0].String()
		return r.because(Userspace, "the path manager runs in user space (net.mptcp.pm_type=1) and has created no subflow", "lklctl sysctl -w net.mptcp.pm_type=0 (for new connections)")
	}
	peer := c.Remote.Addr().Unmap()
	usable := l.Addrs[:0:0]
	for _, a := range l.Addrs {
		// A dual-stack IPv6 socket can have subflows of both families.
		if a.Is4() == peer.Is4() {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		r.Address = l.Addrs[0].String()
		r = r.because(OtherFamily, fmt.Sprintf("the connection uses %s, and the interface has no such address", familyName(peer)),
			"lklctl addr add ADDRESS/PREFIX %s", l.Name)
		if slices.ContainsFunc(s.Links, func(l Link) bool { return l.CLAT }) {
			r.Remedy = "" // the network may have only IPv6
		}
		return r
	}
	e, addr := s.endpoint(usable)
	r.Address = addr.String()
	if s.passive(c) {
		return s.notJoined(c, r, e)
	}
	if e == nil || e.Flags&stacknet.EndpointSubflow == 0 {
		return s.noEndpoint(c, r, e, addr)
	}
	if join := s.joining(c, usable); join != nil {
		return s.waits(r, join, e, peer)
	}
	return s.explainJoin(c, r, e, usable)
}

func (r Reason) because(code Code, text, remedy string, args ...any) Reason {
	r.Code, r.Text = code, text
	if remedy != "" {
		r.Remedy = fmt.Sprintf(remedy, args...)
	}
	return r
}

func familyName(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// endpoint returns the endpoint of one of addrs. It prefers an endpoint from which
// subflows start. If there is no endpoint, it returns nil and the first address.
func (s *stack) endpoint(addrs []netip.Addr) (*stacknet.Endpoint, netip.Addr) {
	var any *stacknet.Endpoint
	for _, a := range addrs {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if e.Addr.Unmap() != a || e.Flags&stacknet.EndpointImplicit != 0 {
				continue
			}
			if e.Flags&stacknet.EndpointSubflow != 0 {
				return e, a
			}
			any = cmp.Or(any, e)
		}
	}
	if any != nil {
		return any, any.Addr.Unmap()
	}
	return nil, addrs[0]
}

func (s *stack) noEndpoint(c *sockdiag.Connection, r Reason, e *stacknet.Endpoint, addr netip.Addr) Reason {
	if e != nil {
		return r.because(SignalOnly, "its endpoint only announces the address to the peer (signal), and the peer must connect to it",
			"lklctl mptcp endpoint del id %d; lklctl mptcp endpoint add %v dev %s subflow", e.ID, addr, r.Iface)
	}
	remedy := "lklctl mptcp endpoint add %v dev %s subflow"
	if was, ok := s.last(c, []netip.Addr{addr}); ok && was.joined && was.closed {
		return r.because(EndpointGone, "its MPTCP endpoint was deleted, which closed the subflow", remedy, addr, r.Iface)
	}
	return r.because(NoEndpoint, "the address is not an MPTCP endpoint", remedy, addr, r.Iface)
}

// joining returns a subflow from one of addrs that waits for the answer to its SYN.
func (s *stack) joining(c *sockdiag.Connection, addrs []netip.Addr) *sockdiag.Socket {
	for i := range c.Subflows {
		f := &c.Subflows[i]
		for _, a := range addrs {
			if f.State == sockdiag.SynSent && f.Local.Addr().Unmap() == a {
				return f
			}
		}
	}
	return nil
}

// waits explains why a SYN with MP_JOIN is still unanswered.
func (s *stack) waits(r Reason, f *sockdiag.Socket, e *stacknet.Endpoint, peer netip.Addr) Reason {
	if s.noRoute(e, f.Remote.Addr().Unmap()) {
		return s.unrouted(r, e, f.Remote.Addr().Unmap())
	}
	retrans := sockdiag.Value{}
	if f.TCP != nil {
		retrans = f.TCP.TotalRetrans
	}
	if retrans.N == 0 {
		return r.because(Joining, fmt.Sprintf("a join is in progress (SYN to %v)", f.Remote), "")
	}
	return r.because(Unanswered, fmt.Sprintf("joins get no answer: the SYN to %v was sent %d times; a firewall on this path drops it, or there is no return route", f.Remote, retrans.N+1),
		"check that %v is reachable from here: lklctl exec -- ping -I %s %[1]v", f.Remote.Addr().Unmap(), r.Iface)
}

func (s *stack) noRoute(e *stacknet.Endpoint, to netip.Addr) bool {
	return s.NoRoute[routeOf(e, to)]
}

// routeOf returns the route of a subflow from an endpoint to a peer.
func routeOf(e *stacknet.Endpoint, to netip.Addr) Route {
	return Route{From: e.Addr.Unmap(), To: to, IfIndex: e.Ifindex}
}

func (s *stack) unrouted(r Reason, e *stacknet.Endpoint, to netip.Addr) Reason {
	return r.because(NoRoute, fmt.Sprintf("there is no route from %v to %v over %s", e.Addr.Unmap(), to, r.Iface),
		"add a gateway (gw= of --if, or lklctl ip route add %v via GATEWAY dev %s metric 1000); then: %s", to, r.Iface, s.retry(e, r.Iface))
}

// retry describes how to repeat a join. The kernel itself tries each endpoint only once.
func (s *stack) retry(e *stacknet.Endpoint, dev string) string {
	if s.Retries {
		return "lklrun retries it within 30 seconds"
	}
	return s.retryCommand(e, dev)
}

// retryCommand describes how to try an endpoint again on all connections. This ends the subflows
// that use the endpoint.
func (s *stack) retryCommand(e *stacknet.Endpoint, dev string) string {
	flags := "subflow"
	if e.Flags&stacknet.EndpointBackup != 0 {
		flags += " backup"
	}
	if e.Flags&stacknet.EndpointFullmesh != 0 {
		flags += " fullmesh"
	}
	return fmt.Sprintf("lklctl mptcp endpoint del id %d; lklctl mptcp endpoint add %v dev %s %s", e.ID, e.Addr.Unmap(), dev, flags)
}

// notJoined explains why a peer that opened c has not created a subflow to one of our
// interfaces. The side that opened a connection creates its subflows, to the addresses
// that it knows.
func (s *stack) notJoined(c *sockdiag.Connection, r Reason, e *stacknet.Endpoint) Reason {
	i := c.MPTCP
	if e == nil || e.Flags&stacknet.EndpointSignal == 0 {
		add := fmt.Sprintf("lklctl mptcp endpoint add %s dev %s signal", r.Address, r.Iface)
		if e != nil {
			add = fmt.Sprintf("lklctl mptcp endpoint del id %d; %s", e.ID, add)
		}
		return r.because(NotSignalled, "the peer creates the subflows, and no endpoint announces this address to it (flag signal)",
			"%s (or pass signal in --if)", add)
	}
	switch {
	case !established(c):
		return r.because(NotYet, "joins start after data has flowed in both directions", "")
	case i.SubflowsMax.Known && i.Subflows.Known && i.Subflows.N >= i.SubflowsMax.N:
		return r.because(Limit, fmt.Sprintf("this side accepts %d additional subflows, and the connection has %d", i.SubflowsMax.N, i.Subflows.N),
			"lklctl mptcp limits set subflows %d (for new connections)", i.SubflowsMax.N+1)
	case s.count("MPJoinAckHMacFailure") > 0:
		return r.because(BadHMAC, fmt.Sprintf("joins arrived with a wrong HMAC (%d on all connections): they came from hosts other than the peers", s.count("MPJoinAckHMacFailure")), "")
	}
	heard := "the peer has not acknowledged it"
	if s.count("EchoAdd") > 0 {
		heard = "peers have acknowledged such announcements"
	}
	return r.because(NotAccepted, fmt.Sprintf("the address was announced to the peer (%s), which created no subflow to it", heard),
		"on the peer: ip mptcp limits set add_addr_accepted 2 subflows 2, and a route to %s", r.Address)
}
