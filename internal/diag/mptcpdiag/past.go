// SPDX-License-Identifier: Apache-2.0

package mptcpdiag

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// lastSubflow is the history of the last subflow from an address.
type lastSubflow struct {
	joined bool          // the subflow was established
	closed bool          // the subflow has ended
	lived  time.Duration // time from establishment to end; 0: unknown
	end    mptcpevent.Event
}

// atOnce is the maximum lifetime of a subflow that the peer reset after the third segment
// of the handshake. Until the fourth segment arrives, the kernel ignores the reason of
// the reset (check_fully_established(), net/mptcp/options.c).
const atOnce = 5 * time.Second

// last returns the history of c's last subflow from one of addrs. It returns false if
// none is known.
func (s *stack) last(c *sockdiag.Connection, addrs []netip.Addr) (w lastSubflow, ok bool) {
	if s.Past == nil {
		return w, false
	}
	var began time.Time
	for _, e := range s.Past.Events {
		if uint64(e.Token) != c.MPTCP.Token.N || !slices.Contains(addrs, e.Local.Addr().Unmap()) {
			continue
		}
		switch e.Kind {
		case mptcpevent.SubEstablished:
			w, ok, began = lastSubflow{joined: true}, true, e.Time
		case mptcpevent.SubClosed:
			// The kernel sends no event when the first subflow is
			// established.
			w.joined = w.joined || e.LocalID != nil && *e.LocalID == 0
			w.closed, w.end, ok = true, e, true
			if !began.IsZero() {
				w.lived = e.Time.Sub(began)
			}
		}
	}
	return w, ok
}

// denied reports whether the peer refuses subflows to its first address.
func (s *stack) denied(c *sockdiag.Connection) bool {
	if s.Past == nil {
		return false
	}
	return slices.ContainsFunc(s.Past.Events, func(e mptcpevent.Event) bool {
		return uint64(e.Token) == c.MPTCP.Token.N && e.DenyJoinID0
	})
}

// explainJoin explains the result of a join from an endpoint that has no subflow.
func (s *stack) explainJoin(c *sockdiag.Connection, r Reason, e *stacknet.Endpoint, addrs []netip.Addr) Reason {
	peer := c.Remote.Addr().Unmap()
	if w, ok := s.last(c, addrs); ok && w.closed {
		if s.noRoute(e, peer) {
			return s.unrouted(r, e, peer)
		}
		return s.ended(r, e, w, peer)
	}
	i := c.MPTCP
	switch {
	case !established(c):
		return r.because(NotYet, "joins start after data has flowed in both directions, which has not happened yet", "")
	case s.denied(c):
		return r.because(DenyID0, "the peer rejects subflows to its initial address, and it has announced no other usable address", "")
	case i.SubflowsMax.Known && i.Subflows.Known && i.Subflows.N >= i.SubflowsMax.N:
		return r.because(Limit, fmt.Sprintf("the limit is %d additional subflows, and the connection has %d", i.SubflowsMax.N, i.Subflows.N),
			"lklctl mptcp limits set subflows %d (for new connections); for this connection, also: %s", i.SubflowsMax.N+1, s.retryCommand(e, r.Iface))
	case s.noRoute(e, peer):
		return s.unrouted(r, e, peer)
	}
	return s.guess(r, e)
}

// established reports whether the peer has sent the acknowledgement that allows subflows
// to join the connection (RFC 8684, 3.1).
func established(c *sockdiag.Connection) bool {
	for i := range c.Subflows {
		if f := c.Subflows[i].Subflow; f != nil && f.Flags&sockdiag.FlagFullyEstablished != 0 {
			return true
		}
	}
	return len(c.Subflows) == 0
}

// ended explains why the last subflow has ended, or why the attempt to create it has
// failed.
func (s *stack) ended(r Reason, e *stacknet.Endpoint, w lastSubflow, peer netip.Addr) Reason {
	to, retry := w.end.Remote, s.retry(e, r.Iface)
	words := w.end.ResetWords()
	if words != "" {
		words = " (" + words + ")"
	}
	if !w.joined {
		switch w.end.Errno {
		case syscall.ECONNREFUSED:
			if w.end.ResetReason != nil {
				return r.because(PeerLimit, fmt.Sprintf("the peer refused the join to %v%s: its limits are reached, or its program does not use MPTCP there", to, words), "on the peer: ip mptcp limits set subflows 2; then here: %s", retry)
			}
			return r.because(Refused, fmt.Sprintf("the join to %v was refused with a RST: the peer's program has closed its listening socket, or a firewall on this path rejects the SYN", to),
				"to tell which, on the peer: ss -ltn 'sport = :%d', which shows the listening socket; then: %s", to.Port(), retry)
		case syscall.ETIMEDOUT:
			return r.because(TimedOut, fmt.Sprintf("the join to %v timed out: its SYNs got no answer; a firewall on this path drops them, or there is no return route", to), "then: %s", retry)
		case syscall.EHOSTUNREACH, syscall.ENETUNREACH:
			return r.because(Unreachable, fmt.Sprintf("the join failed, because %v is unreachable: %v; the next hop does not answer, or a router on this path has no route", to, w.end.Errno), "then: %s", retry)
		case 0:
			if s.count("MPJoinSynAckHMacFailure") > 0 {
				return r.because(BadHMAC, fmt.Sprintf("%v answered the join with a wrong HMAC: it is not the peer", to), "then: %s", retry)
			}
			return r.because(JoinStripped, fmt.Sprintf("%v answered the join without MP_JOIN: something on this path strips MPTCP options, or it is not the peer", to), "use another path; then: %s", retry)
		}
		return r.because(ConnectError, fmt.Sprintf("the join to %v failed: %v%s", to, w.end.Errno, words), "then: %s", retry)
	}
	switch {
	case w.end.ResetReason != nil && *w.end.ResetReason == prohibited:
		return r.because(PeerLimit, fmt.Sprintf("the peer closed the subflow to %v%s: its limit is reached", to, words), "on the peer: ip mptcp limits set subflows 8; then here: %s", retry)
	case w.end.Errno == syscall.EBADMSG:
		return r.because(Corrupt, fmt.Sprintf("the subflow to %v was closed: its data arrived with an invalid mapping (DSS), so something on this path changes segments", to), "use another path; then: %s", retry)
	case w.end.Errno == syscall.ETIMEDOUT:
		return r.because(Ended, fmt.Sprintf("the subflow to %v timed out: the peer stopped acknowledging data", to), "then: %s", retry)
	case w.end.Errno == syscall.ECONNRESET || words != "":
		return r.because(Ended, fmt.Sprintf("the subflow to %v was reset%s", to, words), "then: %s", retry)
	case w.end.Errno != 0:
		return r.because(Ended, fmt.Sprintf("the subflow to %v has ended: %v", to, w.end.Errno), "then: %s", retry)
	case w.lived > 0 && w.lived < atOnce:
		return r.because(PeerLimit, fmt.Sprintf("the peer closed the subflow to %v immediately, probably because its limit is reached", to),
			"on the peer: ip mptcp limits set subflows 8; then here: %s", retry)
	}
	return r.because(Ended, fmt.Sprintf("the subflow to %v was closed by the peer, or because its path was down for a time", to), "to create it again: %s", retry)
}

// prohibited is MPTCP_RST_EPROHIBIT, include/uapi/linux/mptcp.h.
const prohibited = 3

// guess explains a missing subflow if there is no record of an attempt. It uses the
// counters, which apply to the whole stack.
func (s *stack) guess(r Reason, e *stacknet.Endpoint) Reason {
	for _, k := range []struct{ counter, text string }{
		{"MPJoinSynTxConnectErr", "joins could not be sent"},
		{"MPJoinSynTxBindErr", "joins could not be bound to their address"},
		{"MPJoinSynTxCreatSkErr", "joins could not create a socket"},
	} {
		if n := s.count(k.counter); n > 0 {
			return r.because(ConnectError, fmt.Sprintf("no subflow was created from here; on all connections, %d %s (%s)", n, k.text, k.counter), "to retry: %s", s.retryCommand(e, r.Iface))
		}
	}
	text := "there is no record of a join from here"
	if s.Past == nil || s.Past.Gap {
		text = "the result of the last join from here is unknown"
	}
	return r.because(Unknown, text, "to retry: %s; lklctl mptcp monitor shows the result", s.retryCommand(e, r.Iface))
}
