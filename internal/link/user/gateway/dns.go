// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/lklrun/lklrun/internal/link/user/rules"
)

const (
	dnsPort    = 53
	dnsHeader  = 12 // RFC 1035, 4.1.1
	resolvConf = "/etc/resolv.conf"

	// queryLimit bounds the wait for one server's answer. Programs repeat a
	// query after five seconds.
	queryLimit = 2 * time.Second
)

// dialFunc opens a socket to a name server.
type dialFunc func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)

// resolver forwards queries unchanged to the host's name servers, so that it
// supports all types of answers. The servers may be reachable only from the
// host itself (127.0.0.53).
type resolver struct {
	path string
	dial dialFunc

	mu      sync.Mutex
	changed time.Time // modification time of the file when it was read
	servers []netip.AddrPort
}

func newResolver(path string, dial dialFunc) *resolver { return &resolver{path: path, dial: dial} }

// current returns the name servers in the host's present resolv.conf.
func (r *resolver) current() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	st, err := os.Stat(r.path)
	if err == nil && st.ModTime().Equal(r.changed) && r.servers != nil {
		return r.servers
	}
	r.servers = nil
	if err == nil {
		r.changed = st.ModTime()
		if text, err := os.ReadFile(r.path); err == nil {
			r.servers = nameServers(string(text))
		}
	}
	if len(r.servers) == 0 { // the default of resolv.conf(5): the server on this machine
		r.servers = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsPort)}
	}
	return r.servers
}

func nameServers(text string) []netip.AddrPort {
	var all []netip.AddrPort
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			if a, err := netip.ParseAddr(f[1]); err == nil {
				all = append(all, netip.AddrPortFrom(a, dnsPort))
			}
		}
	}
	return all
}

// dialTCP connects to the first name server that accepts the connection.
func (r *resolver) dialTCP(ctx context.Context) (net.Conn, error) {
	var errs []error
	for _, s := range r.current() {
		ctx, cancel := context.WithTimeout(ctx, queryLimit)
		conn, err := r.dial(ctx, "tcp", s)
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// exchange queries the servers in turn and returns the first usable answer. If
// there is none, it returns an answer that reports a server failure.
func (r *resolver) exchange(ctx context.Context, query []byte) []byte {
	answer := serverFailure(query)
	for _, s := range r.current() {
		got, err := r.ask(ctx, s, query)
		if err != nil {
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
func (r *resolver) ask(ctx context.Context, server netip.AddrPort, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	conn, err := r.dial(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	b := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return nil, err
		}
		// Ignore answers to earlier queries, and datagrams that are not
		// DNS.
		if n >= dnsHeader && binary.BigEndian.Uint16(b) == binary.BigEndian.Uint16(query) {
			return b[:n], nil
		}
	}
}

// serverFailure turns the query into an answer with response code 2 (RFC 1035,
// 4.1.1).
func serverFailure(query []byte) []byte {
	a := append([]byte(nil), query...)
	a[2] |= 0x80                // QR
	a[3] = a[3]&0x70 | 0x80 | 2 // RA, SERVFAIL
	return a
}

// answer serves the queries from one of the stack's ports.
func (g *Gateway) answer(ctx context.Context, in *gonet.UDPConn, s rules.Socket) {
	defer in.Close()
	a := newAssociation(g, udpPairs, func() { in.Close() })
	defer a.table.remove(&a.entry)
	b := make([]byte, maxDatagram)
	for ctx.Err() == nil {
		if err := in.SetReadDeadline(time.Now().Add(idleLimit)); err != nil {
			return
		}
		n, err := in.Read(b)
		if err != nil {
			return
		}
		if n < dnsHeader || b[2]&0x80 != 0 { // not a query
			continue
		}
		a.touch()
		query := append([]byte(nil), b[:n]...)
		go g.resolve(ctx, in, s, query)
	}
}

// resolve answers a query. A query that is evicted in favour of others fails.
func (g *Gateway) resolve(ctx context.Context, to io.Writer, s rules.Socket, query []byte) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &entry{g: g, end: cancel}
	tables()[queries].add(e)
	defer tables()[queries].remove(e)
	a := g.ruled(query, s, func(query []byte) []byte {
		if g.proxy != nil {
			return g.proxy.answer(query)
		}
		return g.dns.exchange(ctx, query)
	})
	if a != nil {
		_, _ = to.Write(a) // an answer can get lost, as on a wire
	}
}
