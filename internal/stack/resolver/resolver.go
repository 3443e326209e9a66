// SPDX-License-Identifier: Apache-2.0

// Package resolver serves name queries on the stack's loopback, for programs that have no
// resolv.conf: C libraries, Go and bionic then query port 53 of the loopback address. The
// server forwards queries unchanged to the run's name servers, over the stack, so it
// supports all types of answers.
package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

const (
	port        = 53
	header      = 12 // RFC 1035, 4.1.1
	maxDatagram = 65535
	maxPiece    = 16384

	// queryLimit bounds the wait for one server's answer. Programs repeat a query after
	// five seconds.
	queryLimit = 2 * time.Second
	// streamLimit bounds the time of a connection.
	streamLimit = 30 * time.Second

	// The resolver works on this many queries and connections at the same time. It
	// drops further queries, which programs repeat. Further connections wait.
	maxQueries = 256
	maxStreams = 32
)

// Options are the parameters of a Resolver.
type Options struct {
	Conn    *stackconn.Conn
	Addrs   []netip.Addr        // addresses of the stack to listen on
	Servers func() []netip.Addr // current name servers, in order
	Log     *slog.Logger
}

// A Resolver is a server in the stack.
type Resolver struct {
	Options

	end     context.CancelFunc
	work    sync.WaitGroup
	queries chan struct{}
	streams chan struct{}
	sockets []*stackconn.Socket
}

// Start listens on all addresses that the stack has.
func (r *Resolver) Start(ctx context.Context) error {
	r.queries, r.streams = make(chan struct{}, maxQueries), make(chan struct{}, maxStreams)
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	r.end = end
	for _, a := range r.Addrs {
		udp, tcp, err := r.listen(ctx, netip.AddrPortFrom(a, port))
		if err != nil {
			if a.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
				r.Log.Debug("no name server on the stack's IPv6 loopback", "error", err)
				continue
			}
			r.Stop()
			return fmt.Errorf("serving names at %s in the stack: %w", a, err)
		}
		r.work.Go(func() { r.datagrams(background, udp) })
		r.work.Go(func() { r.connections(background, tcp) })
	}
	return nil
}

// Stop closes the sockets and ends all work.
func (r *Resolver) Stop() {
	r.end()
	r.work.Wait()
	for _, s := range r.sockets {
		if err := s.Close(); err != nil {
			r.Log.Debug("closing a socket of the name server in the stack", "error", err)
		}
	}
	r.sockets = nil
}

// listen opens the sockets for one address.
func (r *Resolver) listen(ctx context.Context, at netip.AddrPort) (udp, tcp *stackconn.Socket, err error) {
	for _, s := range []struct {
		socket **stackconn.Socket
		typ    int
	}{{&udp, unix.SOCK_DGRAM}, {&tcp, unix.SOCK_STREAM}} {
		if *s.socket, err = r.Conn.Socket(ctx, family(at.Addr()), s.typ, 0); err != nil {
			return nil, nil, err
		}
		r.sockets = append(r.sockets, *s.socket)
		if err := (*s.socket).Bind(ctx, sockaddr(at)); err != nil {
			return nil, nil, err
		}
	}
	return udp, tcp, tcp.Listen(ctx, maxStreams)
}

// datagrams serves queries that arrive at a UDP socket.
func (r *Resolver) datagrams(ctx context.Context, s *stackconn.Socket) {
	b := make([]byte, maxDatagram)
	for {
		n, from, err := s.RecvFrom(ctx, b, 0)
		if err != nil {
			r.over(ctx, err)
			return
		}
		if n < header || b[2]&0x80 != 0 { // not a query
			continue
		}
		query := append([]byte(nil), b[:n]...)
		select {
		case r.queries <- struct{}{}:
		default:
			continue
		}
		r.work.Go(func() {
			defer func() { <-r.queries }()
			_, _ = s.SendTo(ctx, r.exchange(ctx, query), unix.MSG_DONTWAIT, from) // an answer can get lost, as on a wire
		})
	}
}

// exchange queries the servers in turn and returns the first usable answer. If there is
// none, it returns an answer that reports a server failure.
func (r *Resolver) exchange(ctx context.Context, query []byte) []byte {
	answer := failure(query)
	for _, a := range r.Servers() {
		got, err := r.ask(ctx, netip.AddrPortFrom(a, port), query)
		if err != nil {
			r.Log.Debug("forwarding a name query", "server", a, "error", err)
			continue
		}
		answer = got
		if rcode := got[3] & 0xf; rcode != 2 && rcode != 5 { // SERVFAIL, REFUSED
			break
		}
	}
	return answer
}

// ask sends query to one server and waits for its answer.
func (r *Resolver) ask(ctx context.Context, server netip.AddrPort, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	s, err := r.dial(ctx, server, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if _, err := s.Send(ctx, query); err != nil {
		return nil, err
	}
	b := make([]byte, maxDatagram)
	for {
		n, _, err := s.RecvFrom(ctx, b, 0)
		if err != nil {
			return nil, err
		}
		if n >= header && b[2]&0x80 != 0 && binary.BigEndian.Uint16(b) == binary.BigEndian.Uint16(query) {
			return b[:n], nil
		}
	}
}

// dial connects a socket of the stack to a server.
func (r *Resolver) dial(ctx context.Context, server netip.AddrPort, typ int) (*stackconn.Socket, error) {
	s, err := r.Conn.Socket(ctx, family(server.Addr()), typ, 0)
	if err != nil {
		return nil, err
	}
	if err := s.Connect(ctx, sockaddr(server)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// connections serves the connections to a listening socket. Programs query over TCP if an
// answer does not fit into a datagram.
func (r *Resolver) connections(ctx context.Context, l *stackconn.Socket) {
	for {
		select {
		case r.streams <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s, err := l.Accept(ctx)
		if err != nil {
			r.over(ctx, err)
			return
		}
		r.work.Go(func() {
			defer func() { <-r.streams }()
			defer s.Close()
			ctx, cancel := context.WithTimeout(ctx, streamLimit)
			defer cancel()
			r.stream(ctx, s)
		})
	}
}

// stream joins a connection to the first server that accepts one.
func (r *Resolver) stream(ctx context.Context, s *stackconn.Socket) {
	for _, a := range r.Servers() {
		limited, cancel := context.WithTimeout(ctx, queryLimit)
		to, err := r.dial(limited, netip.AddrPortFrom(a, port), unix.SOCK_STREAM)
		cancel()
		if err != nil {
			r.Log.Debug("forwarding a connection of the name service", "server", a, "error", err)
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		var other sync.WaitGroup
		other.Go(func() { move(ctx, to, s) })
		move(ctx, s, to) // the server's end of the connection ends both directions
		cancel()
		other.Wait()
		to.Close()
		return
	}
}

// move copies one direction of a connection until its end.
func move(ctx context.Context, to, from *stackconn.Socket) {
	b := make([]byte, maxPiece)
	for {
		n, _, err := from.RecvFrom(ctx, b, 0)
		if err != nil || n == 0 {
			_ = to.Shutdown(ctx) // the connection may be gone
			return
		}
		for p := b[:n]; len(p) > 0; {
			n, err := to.Send(ctx, p)
			if err != nil {
				return
			}
			p = p[n:]
		}
	}
}

// over reports an error that ends a server before Stop.
func (r *Resolver) over(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, stackconn.ErrClosed) {
		r.Log.Warn("the name server on the stack's loopback has ended", "error", err)
	}
}

// failure turns the query into an answer with response code 2 (RFC 1035, 4.1.1).
func failure(query []byte) []byte {
	a := append([]byte(nil), query...)
	a[2] |= 0x80                // QR
	a[3] = a[3]&0x70 | 0x80 | 2 // RA, SERVFAIL
	return a
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// sockaddr returns a struct sockaddr_in or sockaddr_in6.
func sockaddr(at netip.AddrPort) []byte {
	b := make([]byte, unix.SizeofSockaddrInet4)
	to := b[4:]
	if at.Addr().Is6() {
		b = make([]byte, unix.SizeofSockaddrInet6)
		to = b[8:]
	}
	binary.NativeEndian.PutUint16(b, uint16(family(at.Addr())))
	binary.BigEndian.PutUint16(b[2:], at.Port())
	copy(to, at.Addr().AsSlice())
	return b
}
