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
			roomy(d.udp)
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
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	r, err := g.dialStack(ctx, from.Addr().Unmap(), d.port)
	if err != nil {
		g.log.Debug("gateway: connecting to the stack", "error", err)
		reset(c)
		return
	}
	r.host = c
	g.relay(r)
}

// way returns the address under which the stack sees an outside peer.
func (g *Gateway) way(from netip.Addr, port uint16) (local, remote tcpip.FullAddress, protocol tcpip.NetworkProtocolNumber) {
	n := g.cfg.networks()[0]
	if from.Is6() && g.cfg.Address6.IsValid() {
		n = g.cfg.networks()[1]
	}
	switch {
	case from.IsLoopback() && from.Is6() == n.host.Is6():
		from = n.host
	case from.Is6() != n.host.Is6() || n.address.Contains(from) || from.IsLinkLocalUnicast():
		from = n.gateway // the stack could not answer the peer's own address
	}
	local = tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(from.AsSlice())}
	remote = tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(n.address.Addr().AsSlice()), Port: port}
	return local, remote, n.protocol
}

// dialStack connects to a port of the stack on behalf of an outside peer.
func (g *Gateway) dialStack(ctx context.Context, from netip.Addr, port uint16) (*relay, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	e := &entry{g: g, peer: from, end: cancel}
	tables()[entering].add(e)
	defer tables()[entering].remove(e)
	local, remote, protocol := g.way(from, port)
	var wq waiter.Queue
	ep, terr := g.stack.NewEndpoint(tcp.ProtocolNumber, protocol, &wq)
	if terr != nil {
		return nil, errors.New(terr.String())
	}
	writable, connected := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&writable)
	defer wq.EventUnregister(&writable)
	if terr = ep.Bind(local); terr == nil {
		terr = ep.Connect(remote)
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
		return nil, fmt.Errorf("port %d: %v", port, terr)
	}
	return &relay{stack: gonet.NewTCPConn(&wq, ep), endpoint: ep, events: &wq}, nil
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

func (g *Gateway) newSender(ctx context.Context, d *door, s *knownSenders, from netip.AddrPort, way []byte) (*sender, error) {
	local, remote, protocol := g.way(from.Addr().Unmap(), d.port)
	conn, err := gonet.DialUDP(g.stack, &local, &remote, protocol)
	if err != nil {
		return nil, err
	}
	p := &sender{newAssociation(g, senders, func() { conn.Close() }), conn}
	go func() {
		defer s.forget(from)
		p.carry(ctx, &answer{d.udp, from, way}, conn)
	}()
	return p, nil
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
