// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// findLimit bounds the time to list the sockets and their processes.
const findLimit = 5 * time.Second

// Finder finds the processes of a stack's sockets by the addresses of the sockets, on the
// stack's machine. It lists all sockets at once, for all callers that wait at that time.
type Finder struct {
	Conn *stackconn.Conn

	listing sync.Mutex // held by the list that is being made
	mu      sync.Mutex
	next    *list // the list that is made next; nil: nobody waits for it
}

type list struct {
	done    chan struct{}
	sockets []sockdiag.Socket
	err     error
}

var (
	errNoSocket   = errors.New("no socket of the program has these addresses")
	errManyOwners = errors.New("several sockets of the program have these addresses")
	errNoOwner    = errors.New("which processes have the socket open is unknown")
)

// Processes returns the processes that have a socket open. If it is not certain which these
// are, it returns an error.
func (f *Finder) Processes(protocol string, from, to netip.AddrPort) ([]sockdiag.Process, error) {
	f.mu.Lock()
	l := f.next
	if l == nil {
		l = &list{done: make(chan struct{})}
		f.next = l
		go f.list(l)
	}
	f.mu.Unlock()
	<-l.done
	if l.err != nil {
		return nil, l.err
	}
	return match(l.sockets, sockdiag.Proto(protocol), from, to)
}

// list makes a list after the present one, so that it shows the sockets of all its callers.
func (f *Finder) list(l *list) {
	f.listing.Lock()
	defer f.listing.Unlock()
	f.mu.Lock()
	f.next = nil
	f.mu.Unlock()
	defer close(l.done)
	ctx, cancel := context.WithTimeout(context.Background(), findLimit)
	defer cancel()
	for _, protocol := range []sockdiag.Proto{sockdiag.TCP, sockdiag.UDP} {
		some, err := sockdiag.List(ctx, f.Conn, protocol)
		if err != nil {
			l.err = err
			return
		}
		l.sockets = append(l.sockets, some...)
	}
	l.err = Attribute(ctx, f.Conn, l.sockets)
}

// match returns the processes of the only socket with these addresses. A UDP socket need not
// have an address of its own or a peer.
func match(sockets []sockdiag.Socket, protocol sockdiag.Proto, from, to netip.AddrPort) ([]sockdiag.Process, error) {
	plain := func(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
	var found *sockdiag.Socket
	for i := range sockets {
		s := &sockets[i]
		local, remote := plain(s.Local), plain(s.Remote)
		if s.Proto != protocol || local.Port() != from.Port() {
			continue
		}
		if protocol == sockdiag.TCP && (local != from || remote != to) {
			continue
		}
		if protocol != sockdiag.TCP && (local.Addr() != from.Addr() && !local.Addr().IsUnspecified() || remote.Port() != 0 && remote != to) {
			continue
		}
		if found != nil && found.Inode != s.Inode {
			return nil, errManyOwners
		}
		found = s
	}
	if found == nil {
		return nil, errNoSocket
	}
	// A process without descriptors has only created the socket.
	held := slices.DeleteFunc(slices.Clone(found.Processes), func(p sockdiag.Process) bool { return len(p.FDs) == 0 })
	if len(held) == 0 {
		return nil, errNoOwner
	}
	return held, nil
}
