// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/lklrun/lklrun/internal/link/user/rules"
)

// idleLimit is the time for which an idle pair of UDP ports is kept: the
// minimum for address translators in RFC 4787, REQ-5.
const idleLimit = 2 * time.Minute

// maxDatagram is the largest UDP payload over IPv4.
const maxDatagram = 65507

// datagramBuffer is the buffer size on both sides of a pair of ports. It holds
// the datagrams that arrive while this process does other work. A wire would
// have spread them out over time.
const datagramBuffer = 4 << 20

// growBuffer makes the buffer of a host socket as large as the host allows.
func growBuffer(c net.Conn) {
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, datagramBuffer) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, datagramBuffer)
		}
	})
}

// associate accepts the first datagram of a pair of the stack's ports. It runs
// in the router's receive path, so it must not block.
func (g *Gateway) associate(ctx context.Context, id stack.TransportEndpointID, pkt *stack.PacketBuffer) {
	var out net.Conn
	var flow *rules.Flow
	far := (g.proxy != nil || g.rules != nil && g.rules.Logs()) && !g.isDNS(id.LocalAddress, id.LocalPort)
	if !far && !g.isDNS(id.LocalAddress, id.LocalPort) {
		tables()[udpPairs].makeRoom()
		var err error
		if out, flow, err = g.dialHost(ctx, "udp", id); err != nil {
			g.log.Debug("gateway: sending a datagram", "error", err)
			if why := g.answerFor(netip.AddrPortFrom(peer(id.LocalAddress), id.LocalPort), err); why != nil {
				g.link.refuse(pkt, why)
			}
			return
		}
	}
	var wq waiter.Queue
	ep, terr := udp.NewForwarderRequest(g.stack, id, pkt.Clone()).CreateEndpoint(&wq)
	if terr != nil {
		g.log.Debug("gateway: receiving a datagram", "error", terr)
		if out != nil {
			out.Close()
		}
		return
	}
	ep.SocketOptions().SetReceiveBufferSize(datagramBuffer, true)
	in := gonet.NewUDPConn(&wq, ep)
	if far {
		packet := pkt.ToView().AsSlice()
		go g.associateFar(ctx, id, packet, in)
		return
	}
	if out == nil {
		go g.answer(ctx, in, socketOf("udp", id))
		return
	}
	a := g.join(id, out, in)
	go a.carry(ctx, out, in, flow)
	go a.carry(ctx, in, out, nil)
}

// join joins a pair of ports to its counterpart on the host, or at the proxy.
func (g *Gateway) join(id stack.TransportEndpointID, out net.Conn, in *gonet.UDPConn) *association {
	a := newAssociation(g, udpPairs, func() {
		out.Close()
		in.Close()
	})
	if conn, ok := out.(*net.UDPConn); ok && g.proxy == nil {
		growBuffer(out)
		s := socketOf("udp", id)
		a.host = newHostSocket(g, conn, s.From, s.To)
	}
	return a
}

// associateFar forwards the datagrams of a pair of ports if that takes time, because of a proxy
// or the log. packet is the first one, which an ICMP error quotes.
func (g *Gateway) associateFar(ctx context.Context, id stack.TransportEndpointID, packet []byte, in *gonet.UDPConn) {
	dialling, cancel := context.WithTimeout(ctx, connectLimit)
	e := &entry{g: g, peer: peer(id.LocalAddress), end: cancel}
	tables()[connecting].add(e)
	out, flow, err := g.dialHost(dialling, "udp", id)
	tables()[connecting].remove(e)
	cancel()
	if err != nil {
		g.log.Debug("gateway: sending a datagram", "error", err)
		in.Close()
		if why := g.answerFor(netip.AddrPortFrom(peer(id.LocalAddress), id.LocalPort), err); why != nil {
			g.link.sendError(packet, why, netip.Addr{})
		}
		return
	}
	a := g.join(id, out, in)
	go a.carry(ctx, out, in, flow)
	a.carry(ctx, in, out, nil)
}

// association is a pair of ports. It stays alive while either direction is
// used.
type association struct {
	entry
	table *table
	host  *hostSocket // nil: errors of the host are not passed on
}

// newAssociation returns a pair of ports. The function end closes it.
func newAssociation(g *Gateway, k kind, end func()) *association {
	a := &association{entry: entry{g: g, end: end}, table: tables()[k]}
	a.table.add(&a.entry)
	return a
}

// carry copies datagrams until the pair has been idle for too long, and then
// closes both sides. This also ends the other direction. flow checks the datagrams.
func (a *association) carry(ctx context.Context, to, from net.Conn, flow *rules.Flow) {
	defer a.table.remove(&a.entry)
	defer to.Close()
	defer from.Close()
	pass := func(b []byte) error {
		if a.host == nil {
			_, _ = to.Write(b) // a datagram can get lost, as on a wire
			return nil
		}
		return a.host.write(to, b)
	}
	b := make([]byte, maxDatagram)
	for ctx.Err() == nil {
		n, err := a.next(from, b)
		if err != nil {
			return
		}
		a.touch()
		if flow.Watched() {
			err = flow.Datagram(b[:n], pass)
		} else {
			err = pass(b[:n])
		}
		if a.host != nil && errors.As(err, new(*rules.DeniedError)) {
			a.g.link.sendError(a.host.quote(b[:n]), prohibited, netip.Addr{})
		}
		if errors.Is(err, unix.ENETUNREACH) {
			return // the next datagram finds another route, or is answered with an error
		}
	}
}

// next reads a datagram. It passes errors of earlier datagrams on.
func (a *association) next(from net.Conn, b []byte) (int, error) {
	for {
		last := time.Unix(0, a.last.Load())
		if err := from.SetReadDeadline(last.Add(idleLimit)); err != nil {
			return 0, err
		}
		n, err := from.Read(b)
		var errno unix.Errno
		switch {
		case err != nil && isTimeout(err) && time.Since(time.Unix(0, a.last.Load())) < idleLimit:
			continue // the other direction was used in the meantime
		case a.host != nil && errors.As(err, &errno) && hostErrors[errno] != nil:
			a.host.passErrors()
			continue
		}
		return n, err
	}
}
