// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookPause is the minimum time between two queries of the stack's
	// sockets.
	lookPause = 200 * time.Millisecond

	// lookShare limits the cost of queries for a stack with many sockets. The pause
	// is at least lookShare times the duration of the last query. On a busy host,
	// most of that duration is waiting, so lookMost limits the pause.
	lookShare = 50
	lookMost  = 5 * time.Second

	// lookAgain is the time after which a result is refreshed while packets
	// arrive.
	lookAgain = 2 * time.Second

	// lookWait is the maximum time for which packets of an unknown flow wait for a
	// query. Meanwhile, other packets wait in the stack's buffer.
	lookWait = 50 * time.Millisecond

	// lookLimit is the timeout of a query.
	lookLimit = 5 * time.Second

	// maxKnown is the maximum number of ended flows to remember in addition
	// to the open ones.
	maxKnown = 16384
)

// annotator determines the socket and the MPTCP connection of packets, and sets
// Packet.Owner and Packet.Comment. When an unknown flow appears, it queries the
// stack's sockets and their processes in the background, at most a
// few times a second. A flow that ended before the query has no owner. An
// annotator is not safe for concurrent use.
type annotator struct {
	sockets func(context.Context) ([]Socket, error)
	pause   time.Duration // lookPause, except in tests

	known known
	look  chan result // the query in progress; nil: none
	next  time.Time   // no query before that time
	stale time.Time   // after that time, the next packet starts a query
}

// known is the result of a query.
type known struct {
	flows     map[tuple]*annotation
	listening map[tuple]*annotation // listeners by local address; remote is not set
	missing   map[tuple]struct{}    // flows that were not found
}

type annotation struct {
	owner   *Owner
	comment string
	early   bool // the socket is not connected yet, so a later query finds more data
}

type result struct {
	known known
	err   error
	took  time.Duration
}

// newAnnotator returns an annotator for packets of a stack.
func newAnnotator(s Stack) *annotator { return &annotator{sockets: s.Sockets, pause: lookPause} }

// annotate annotates packets of an interface with the link type lt. Queries
// continue in the background until ctx ends.
func (a *annotator) annotate(ctx context.Context, packets []Packet, lt LinkType) {
	a.collect(0)
	if time.Now().After(a.stale) {
		a.begin(ctx)
	}
	waited := false
	for i := range packets {
		p := &packets[i]
		t, ok := tupleOf(p, lt)
		if !ok {
			continue
		}
		found, certain := a.known.find(t)
		if !certain && !waited && a.begin(ctx) {
			waited = true
			a.collect(lookWait)
			if found, certain = a.known.find(t); !certain && a.look == nil {
				a.known.miss(t)
			}
		}
		if found != nil {
			p.Owner, p.Comment = found.owner, found.comment
		}
	}
}

// begin starts a query unless it is too early, and reports whether one is in
// progress.
func (a *annotator) begin(ctx context.Context) bool {
	if a.look != nil {
		return true
	}
	if time.Now().Before(a.next) || ctx.Err() != nil {
		return false
	}
	done := make(chan result, 1)
	a.look = done
	go func() {
		ctx, cancel := context.WithTimeout(ctx, lookLimit)
		defer cancel()
		began := time.Now()
		all, err := a.sockets(ctx)
		done <- result{learn(all), err, time.Since(began)}
	}()
	return true
}

// collect waits up to limit for the result of a query, and stores it.
func (a *annotator) collect(limit time.Duration) {
	if a.look == nil {
		return
	}
	var r result
	select {
	case r = <-a.look:
	default:
		if limit == 0 {
			return
		}
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case r = <-a.look:
		case <-timer.C:
			return
		}
	}
	a.look = nil
	now := time.Now()
	rest := min(lookShare*r.took, lookMost)
	a.next = now.Add(max(a.pause, rest))
	a.stale = now.Add(max(lookAgain, rest))
	if r.err == nil {
		a.known = r.known.remember(a.known)
	}
}

// learn indexes sockets by the addresses in packets.
func learn(all []Socket) known {
	k := known{flows: map[tuple]*annotation{}, listening: map[tuple]*annotation{}}
	for _, s := range all {
		t := tuple{proto: s.Proto, local: plain(s.Local), remote: plain(s.Remote)}
		a := &annotation{owner: s.Owner, comment: comment(s.Owner, s.Note), early: s.Early}
		if t.remote.Port() == 0 {
			t.remote = netip.AddrPort{}
			k.listening[t] = a
		} else {
			k.flows[t] = a
		}
	}
	return k
}

// comment returns the text that Wireshark shows, because it has no field for a
// process's name: "curl(2421) fd 5, mptcp token 023ebfb7 id 2".
func comment(o *Owner, note string) string {
	if o == nil {
		return note
	}
	text := o.String()
	if len(o.FDs) > 0 {
		text += fmt.Sprintf(" fd %d", o.FDs[0])
	}
	if note != "" {
		text += ", " + note
	}
	return text
}

// String returns the process in lklctl's form: curl(2421).
func (o *Owner) String() string { return fmt.Sprintf("%s(%d)", o.Comm, o.PID) }

// plain converts the address of a socket to the form in packets. An IPv6 socket
// reports IPv4 addresses in mapped form (RFC 4291, section 2.5.5.2).
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// find looks up a flow. The result is certain if the flow's own socket is
// completely known, or if a query has not found it. Until then, a TCP flow gets the
// owner of its listener, and a UDP flow the owner of the socket bound to its port.
func (k *known) find(t tuple) (found *annotation, certain bool) {
	_, certain = k.missing[t]
	if a, ok := k.flows[t]; ok {
		return a, certain || !a.early
	}
	bound := tuple{proto: t.proto, local: t.local}
	for _, any := range []netip.Addr{t.local.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		bound.local = netip.AddrPortFrom(any, t.local.Port())
		if a, ok := k.listening[bound]; ok {
			// An unconnected UDP socket owns all flows of its port.
			return a, certain || t.proto == unix.IPPROTO_UDP
		}
	}
	return nil, certain
}

// miss records that a query did not find a flow. Afterwards the flow does not start
// further queries, but queries for other flows may still find it.
func (k *known) miss(t tuple) {
	if k.missing == nil || len(k.missing) >= maxKnown {
		k.missing = map[tuple]struct{}{}
	}
	k.missing[t] = struct{}{}
}

// remember keeps earlier results for sockets that have ended. The last packets of a
// connection can arrive after its socket was closed and has lost its owner.
func (k known) remember(before known) known {
	k.missing = before.missing
	if len(before.flows) > len(k.flows)+maxKnown {
		return k
	}
	for t, a := range before.flows {
		now, ok := k.flows[t]
		if !ok || now.owner == nil && a.owner != nil && strings.HasSuffix(a.comment, now.comment) {
			k.flows[t] = a
		}
	}
	return k
}
