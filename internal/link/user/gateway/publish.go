// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// acceptPause is the delay before the next accept if no descriptors are left.
const acceptPause = 50 * time.Millisecond

// publish serves the gateway's doors until they are closed.
func (g *Gateway) publish(ctx context.Context) {
	for _, d := range g.doors {
		if d.tcp != nil {
			go g.accept(ctx, d)
		} else {
			growBuffer(d.udp)
			go g.forward(ctx, d)
		}
	}
}

func (g *Gateway) accept(ctx context.Context, d *door) {
	for {
		c, err := d.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the connection failed, or no descriptors are left
			g.log.Debug("gateway: accepting on a published port", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
				return
			}
			continue
		}
		go g.enter(ctx, d, c)
	}
}

// enter carries a connection from outside into the stack.
func (g *Gateway) enter(ctx context.Context, d *door, c *net.TCPConn) {
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	r, err := g.dialStack(ctx, from, d.port, c)
	switch {
	case err != nil:
		g.log.Debug("gateway: connecting to the stack", "error", err)
		reset(c)
	case r == nil: // the kernel has it
		c.Close()
	default:
		g.relay(r)
	}
}

// way is how a connection from outside enters the stack: with the address under which the
// stack sees the peer, and to an address of the stack.
type way struct {
	local, remote tcpip.FullAddress
	protocol      tcpip.NetworkProtocolNumber
}

// ways returns the ways for an outside peer. A server may listen with only one family,
// whatever family its client uses; the client's family comes first.
func (g *Gateway) ways(from netip.Addr, port uint16) (all []way) {
	for _, n := range g.cfg.networks() {
		seen := from
		switch {
		case from.IsLoopback() && from.Is6() == n.host.Is6():
			seen = n.host
		case from.Is6() != n.host.Is6() || n.address.Contains(from) || from.IsLinkLocalUnicast():
			seen = n.gateway // the stack could not answer the peer's own address
		}
		w := way{
			tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(seen.AsSlice())},
			tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(n.address.Addr().AsSlice()), Port: port},
			n.protocol,
		}
		if from.Is6() == n.host.Is6() {
			all = append([]way{w}, all...)
		} else {
			all = append(all, w)
		}
	}
	return all
}

// dialStack connects to a port of the stack on behalf of an outside peer. The result is nil if
// the gateway's kernel relays the connection.
func (g *Gateway) dialStack(ctx context.Context, from netip.Addr, port uint16, c *net.TCPConn) (r *relay, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	e := &entry{g: g, peer: from, end: cancel}
	tables()[entering].add(e)
	defer tables()[entering].remove(e)
	kernel := g.theKernel()
	if kernel != nil {
		if err := g.link.meet(ctx); err != nil {
			return nil, err
		}
	}
	for _, w := range g.ways(from, port) {
		if kernel != nil {
			err = kernel.enter(ctx, peer(w.local.Addr), netip.AddrPortFrom(peer(w.remote.Addr), w.remote.Port), c)
		} else {
			r, err = g.dialWay(ctx, w, c)
		}
		if err == nil {
			return r, nil
		}
	}
	return nil, err
}

func (g *Gateway) dialWay(ctx context.Context, w way, c *net.TCPConn) (*relay, error) {
	var wq waiter.Queue
	ep, terr := g.stack.NewEndpoint(tcp.ProtocolNumber, w.protocol, &wq)
	if terr != nil {
		return nil, errors.New(terr.String())
	}
	writable, connected := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&writable)
	defer wq.EventUnregister(&writable)
	if terr = ep.Bind(w.local); terr == nil {
		terr = ep.Connect(w.remote)
	}
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		select {
		case <-connected:
			terr = ep.LastError()
		case <-ctx.Done():
			ep.Close()
			return nil, ctx.Err()
		}
	}
	if terr != nil {
		ep.Close()
		return nil, fmt.Errorf("port %d: %v", w.remote.Port, terr)
	}
	return &relay{stack: gonet.NewTCPConn(&wq, ep), endpoint: ep, events: &wq, host: c}, nil
}

// knownSenders are the pairs of ports through which datagrams from outside
// reach one port of the stack.
type knownSenders struct {
	mu  sync.Mutex
	all map[netip.AddrPort]*sender
}

// sender is one of these pairs. Answers leave from the host address at which
// its first datagram arrived.
type sender struct {
	*association
	conn net.Conn // to the stack
}

// forward carries datagrams from outside into the stack.
func (g *Gateway) forward(ctx context.Context, d *door) {
	enablePacketInfo(d.udp)
	s := knownSenders{all: map[netip.AddrPort]*sender{}}
	b, oob := make([]byte, maxDatagram), make([]byte, 128)
	for {
		n, oobn, _, from, err := d.udp.ReadMsgUDPAddrPort(b, oob)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // an answer could not be delivered
			continue
		}
		p, err := s.find(from, func() (*sender, error) { return g.newSender(ctx, d, &s, from, append([]byte(nil), oob[:oobn]...)) })
		if err != nil {
			g.log.Debug("gateway: receiving a datagram from outside", "error", err)
			continue
		}
		p.touch()
		_, _ = p.conn.Write(b[:n]) // a datagram can get lost, as on a wire
	}
}

func (s *knownSenders) find(from netip.AddrPort, make func() (*sender, error)) (*sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.all[from]; p != nil {
		return p, nil
	}
	p, err := make()
	if err == nil {
		s.all[from] = p
	}
	return p, err
}

func (s *knownSenders) forget(from netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, from)
}

func (g *Gateway) newSender(ctx context.Context, d *door, s *knownSenders, from netip.AddrPort, source []byte) (*sender, error) {
	conn := &port{g: g, ways: g.ways(from.Addr().Unmap(), d.port)}
	if err := conn.dial(); err != nil {
		return nil, err
	}
	p := &sender{newAssociation(g, senders, func() { conn.Close() }), conn}
	go func() {
		defer s.forget(from)
		p.carry(ctx, &answer{d.udp, from, source}, conn, nil)
	}()
	return p, nil
}

// port is a UDP port of the stack. If the stack refuses a datagram, port sends it again on
// the next way.
type port struct {
	g    *Gateway
	ways []way // the present one and the following ones

	mu             sync.Mutex
	*gonet.UDPConn // of the present way
	closed         bool
	last           []byte
	deadline       time.Time
}

// dial opens the present way.
func (p *port) dial() error {
	w, wq := p.ways[0], &waiter.Queue{}
	ep, err := p.g.stack.NewEndpoint(udp.ProtocolNumber, w.protocol, wq)
	if err != nil {
		return errors.New(err.String())
	}
	if err = ep.Bind(w.local); err == nil {
		err = ep.Connect(w.remote)
	}
	if err != nil {
		ep.Close()
		return errors.New(err.String())
	}
	c := gonet.NewUDPConn(wq, ep)
	refused := waiter.NewFunctionEntry(waiter.EventErr, func(waiter.EventMask) { go p.turn(c) })
	wq.EventRegister(&refused)
	p.UDPConn = c
	return nil
}

func (p *port) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = append(p.last[:0], b...)
	return p.UDPConn.Write(b)
}

func (p *port) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		c := p.UDPConn
		p.mu.Unlock()
		n, err := c.Read(b)
		if err == nil || isTimeout(err) || !p.turn(c) {
			return n, err
		}
	}
}

// turn leaves the way of c, which has failed, and sends the last datagram on the next one.
// It reports whether there is a way.
func (p *port) turn(c *gonet.UDPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || c != p.UDPConn {
		return !p.closed
	}
	if len(p.ways) < 2 {
		c.Close() // the next datagram tries all ways again
		return false
	}
	p.ways = p.ways[1:]
	if p.dial() != nil || p.UDPConn.SetReadDeadline(p.deadline) != nil {
		return false
	}
	c.Close()
	_, _ = p.UDPConn.Write(p.last) // a datagram can get lost, as on a wire
	return true
}

func (p *port) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	return p.UDPConn.SetReadDeadline(t)
}

func (p *port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.UDPConn.Close()
}

// answer writes answers to one sender.
type answer struct {
	*net.UDPConn
	to  netip.AddrPort
	way []byte // control message with the host's source address
}

func (a *answer) Write(b []byte) (int, error) {
	n, _, err := a.WriteMsgUDPAddrPort(b, a.way, a.to)
	return n, err
}

// Close does not close the socket, because all senders share it.
func (a *answer) Close() error { return nil }

// enablePacketInfo makes each datagram report its destination address on the
// host. Without it, answers leave from the address that the host's routes
// select.
func enablePacketInfo(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1) // only one of the two families exists
	})
}
