// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/owners"
	"github.com/lklrun/lklrun/internal/sockdiag"
	"github.com/lklrun/lklrun/internal/stackconn"
)

const (
	// lookPause is the least time between two looks at the stack's sockets.
	lookPause = 200 * time.Millisecond

	// lookShare bounds what looking costs a stack with many sockets: the pause
	// is at least so many times as long as the last look took, which on a busy
	// host is mostly waiting; so no longer than lookMost.
	lookShare = 50
	lookMost  = 5 * time.Second

	// lookAgain is how long what is known is believed while packets arrive.
	lookAgain = 2 * time.Second

	// lookWait is how long packets of an unknown flow are held up for a look.
	// Meanwhile others wait in the stack's buffer.
	lookWait = 50 * time.Millisecond

	// lookLimit bounds a look, for a stack that does not answer.
	lookLimit = 5 * time.Second

	// maxKnown bounds how many ended flows are remembered beside the open ones.
	maxKnown = 16384
)

// The states of a connection in the making (include/net/tcp_states.h).
const (
	synSent = sockdiag.State(unix.BPF_TCP_SYN_SENT)
	synRecv = sockdiag.State(unix.BPF_TCP_SYN_RECV)
)

// An Annotator says of packets whose socket they are of, and of which MPTCP
// connection: Packet.Owner and Packet.Comment. It asks the stack for its sockets
// (sock_diag, and whose they are) when an unknown flow appears, some times a
// second at most, beside the capture; a flow that ended before has no owner. It
// is for one goroutine.
type Annotator struct {
	sockets func(context.Context) ([]sockdiag.Socket, error)
	pause   time.Duration // lookPause, but for tests

	known known
	look  chan result // the look under way; nil: none
	next  time.Time   // not before that
	stale time.Time   // from then on the next packet of a flow causes one
}

// known is what the sockets said.
type known struct {
	flows     map[tuple]*annotation
	listening map[tuple]*annotation // by local address; remote is none
	missing   map[tuple]struct{}    // looked for in vain
}

type annotation struct {
	owner   *Owner
	comment string
	early   bool // the socket is yet to be connected: more will be known of it
}

type result struct {
	known known
	err   error
	took  time.Duration
}

// NewAnnotator makes one for packets of the stack behind conn.
func NewAnnotator(conn *stackconn.Conn) *Annotator {
	return &Annotator{
		sockets: func(ctx context.Context) ([]sockdiag.Socket, error) { return ownedSockets(ctx, conn) },
		pause:   lookPause,
	}
}

// ownedSockets lists the sockets that may own packets, each with its processes.
func ownedSockets(ctx context.Context, conn *stackconn.Conn) ([]sockdiag.Socket, error) {
	var all []sockdiag.Socket
	for _, proto := range []sockdiag.Proto{sockdiag.TCP, sockdiag.UDP, sockdiag.MPTCP} {
		some, err := sockdiag.List(ctx, conn, proto)
		if err != nil && !errors.Is(err, sockdiag.ErrUnsupported) {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, owners.Attribute(ctx, conn, all)
}

// Annotate completes packets that came by an interface with that link type. A
// look goes on beside the caller until ctx ends.
func (a *Annotator) Annotate(ctx context.Context, packets []Packet, lt LinkType) {
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

// begin begins a look unless it is too early for one, and tells whether one is
// under way.
func (a *Annotator) begin(ctx context.Context) bool {
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

// collect takes what a look has found, if that is there within limit.
func (a *Annotator) collect(limit time.Duration) {
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

// learn sorts sockets by what packets tell of them.
func learn(all []sockdiag.Socket) known {
	k := known{flows: map[tuple]*annotation{}, listening: map[tuple]*annotation{}}
	byToken := map[uint64]*Owner{}
	for i := range all {
		if s := &all[i]; s.MPTCP != nil && s.MPTCP.Token.N != 0 {
			byToken[s.MPTCP.Token.N] = ownerOf(s)
		}
	}
	for i := range all {
		s := &all[i]
		t := tuple{local: plain(s.Local), remote: plain(s.Remote)}
		switch s.Proto {
		case sockdiag.TCP:
			t.proto = unix.IPPROTO_TCP
		case sockdiag.UDP:
			t.proto = unix.IPPROTO_UDP
		default:
			continue
		}
		token := ""
		a := &annotation{owner: ownerOf(s), early: s.State == synSent || s.State == synRecv}
		if f := s.Subflow; f != nil && f.Token.N == 0 {
			a.early = true
		} else if f != nil {
			token = tokenOf(f)
			if a.owner == nil {
				a.owner = byToken[f.Token.N]
			}
		}
		a.comment = comment(a.owner, token)
		if t.remote.Port() == 0 {
			t.remote = netip.AddrPort{}
			k.listening[t] = a
		} else {
			k.flows[t] = a
		}
	}
	return k
}

// comment is what Wireshark shows of it, which has no place for a process's name:
// "curl(2421) fd 5, mptcp token 023ebfb7 id 2".
func comment(o *Owner, token string) string {
	if o == nil {
		return token
	}
	text := o.String()
	if len(o.FDs) > 0 {
		text += fmt.Sprintf(" fd %d", o.FDs[0])
	}
	if token != "" {
		text += ", " + token
	}
	return text
}

// String names the process as lklctl does: curl(2421).
func (o *Owner) String() string { return fmt.Sprintf("%s(%d)", o.Comm, o.PID) }

// tokenOf names an MPTCP subflow: the connection's token, as `lklctl mptcp` prints
// it, and the id of the local address.
func tokenOf(f *sockdiag.Subflow) string {
	text := fmt.Sprintf("mptcp token %08x", f.Token.N)
	if f.ID.Known {
		text += fmt.Sprintf(" id %d", f.ID.N)
	}
	return text
}

// ownerOf is the first of a socket's processes.
func ownerOf(s *sockdiag.Socket) *Owner {
	if len(s.Processes) == 0 {
		return nil
	}
	p := s.Processes[0]
	return &Owner{PID: p.PID, Comm: p.Comm, Inode: s.Inode, FDs: p.FDs}
}

// plain writes the address of a socket as packets have it: an IPv4 address of an
// IPv6 socket's is mapped (RFC 4291, section 2.5.5.2).
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// find looks a flow up. It is certain when all of its own socket is known, or when
// that has been looked for; until then a TCP flow has its listener's owner, and one of
// UDP the socket that is bound to its port.
func (k *known) find(t tuple) (found *annotation, certain bool) {
	_, certain = k.missing[t]
	if a, ok := k.flows[t]; ok {
		return a, certain || !a.early
	}
	bound := tuple{proto: t.proto, local: t.local}
	for _, any := range []netip.Addr{t.local.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		bound.local = netip.AddrPortFrom(any, t.local.Port())
		if a, ok := k.listening[bound]; ok {
			// A UDP socket that is not connected has all its flows.
			return a, certain || t.proto == unix.IPPROTO_UDP
		}
	}
	return nil, certain
}

// miss remembers that a flow was looked for: it causes no more looks, though
// others may find it.
func (k *known) miss(t tuple) {
	if k.missing == nil || len(k.missing) >= maxKnown {
		k.missing = map[tuple]struct{}{}
	}
	k.missing[t] = struct{}{}
}

// remember keeps of what was known before what has ended since: a connection's
// last packets come when its socket has been closed, and then it has no owner.
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
