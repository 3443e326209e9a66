// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// The gateway forwards pings through ICMP datagram sockets of the host, which the host
// permits to the groups in net.ipv4.ping_group_range.

// pingFlow identifies the pings of one program to one destination.
type pingFlow struct {
	from, to netip.Addr
	ident    [2]byte
}

// ping carries the pings of one flow.
type ping struct {
	*association
	*hostSocket
}

// echo forwards an ICMP packet to elsewhere, if it is a ping. It runs in the router's receive
// path, so it must not block.
func (g *Gateway) echo(ctx context.Context, protocol tcpip.NetworkProtocolNumber, packet []byte) {
	f, message, ttl, ok := parsePing(protocol, packet)
	if !ok || g.rules != nil && g.rules.Audit == nil || g.proxy != nil || !f.to.IsGlobalUnicast() && !f.to.IsLinkLocalUnicast() {
		return
	}
	if ttl <= 1 {
		g.link.sendError(packet, timeExpired, netip.Addr{})
		return
	}
	p, err := g.pinger(ctx, f)
	if err == nil {
		p.touch()
		_ = p.sent(message, p.send(message, ttl-1), func() error { return p.send(message, ttl-1) })
		return
	}
	why := g.answerFor(netip.AddrPortFrom(f.to, 0), err)
	if errors.Is(err, errNoPing) {
		why = prohibited
		if _, again := g.reported.LoadOrStore(errNoPing, true); !again {
			go g.warn(err.Error()) // the terminal may block
		}
	}
	if why != nil {
		g.link.sendError(packet, why, netip.Addr{})
	}
}

// errNoPing reports that the host permits no pings.
var errNoPing = fmt.Errorf("ping does not pass the user-mode gateway: the host's net.ipv4.ping_group_range excludes the group %d; widen it, or use --if raw:DEV", os.Getegid())

// parsePing parses a packet. ok reports whether it is a complete ping.
func parsePing(protocol tcpip.NetworkProtocolNumber, packet []byte) (f pingFlow, message []byte, ttl uint8, ok bool) {
	var request uint8
	switch protocol {
	case header.IPv4ProtocolNumber:
		ip := header.IPv4(packet)
		if !ip.IsValid(len(packet)) || ip.More() || ip.FragmentOffset() != 0 {
			return f, nil, 0, false
		}
		f.from, f.to, ttl = peer(ip.SourceAddress()), peer(ip.DestinationAddress()), ip.TTL()
		message, request = packet[ip.HeaderLength():ip.TotalLength()], uint8(header.ICMPv4Echo)
	case header.IPv6ProtocolNumber:
		ip := header.IPv6(packet)
		if !ip.IsValid(len(packet)) {
			return f, nil, 0, false
		}
		f.from, f.to, ttl = peer(ip.SourceAddress()), peer(ip.DestinationAddress()), ip.HopLimit()
		message, request = packet[header.IPv6MinimumSize:][:ip.PayloadLength()], uint8(header.ICMPv6EchoRequest)
	}
	if len(message) < header.ICMPv4MinimumSize || message[0] != request {
		return f, nil, 0, false
	}
	f.ident = [2]byte(message[4:6])
	return f, message, ttl, true
}

// pinger returns the socket for the pings of a flow.
func (g *Gateway) pinger(ctx context.Context, f pingFlow) (*ping, error) {
	g.mu.Lock()
	p := g.pings[f]
	g.mu.Unlock()
	if p != nil {
		return p, nil
	}
	tables()[udpPairs].makeRoom()
	conn, err := g.cfg.pingSocket(f.to)
	if err != nil {
		return nil, err
	}
	p = &ping{
		newAssociation(g, udpPairs, func() { conn.Close() }),
		newHostSocket(g, conn, netip.AddrPortFrom(f.from, 0), netip.AddrPortFrom(f.to, 0)),
	}
	p.ident, p.association.host = f.ident[:], p.hostSocket
	g.mu.Lock()
	g.pings[f] = p
	g.mu.Unlock()
	go func() {
		p.receive(ctx)
		g.mu.Lock()
		delete(g.pings, f)
		g.mu.Unlock()
	}()
	return p, nil
}

// send sends a ping with a time to live. It does not wait for room in the socket's buffer.
func (p *ping) send(message []byte, ttl uint8) error {
	var err error
	if p.raw == nil {
		return net.ErrClosed
	}
	control := p.raw.Control(func(fd uintptr) {
		if p.to.Addr().Is4() {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TTL, int(ttl))
		} else {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, int(ttl))
		}
		if err == nil {
			_, err = unix.Write(int(fd), message)
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		return nil // lost, as on a busy wire
	}
	return errors.Join(control, err)
}

// receive passes the answers on to the stack until the flow is idle.
func (p *ping) receive(ctx context.Context) {
	defer p.table.remove(&p.entry)
	defer p.conn.Close()
	b := make([]byte, maxDatagram)
	for ctx.Err() == nil {
		n, err := p.next(p.conn, b)
		if err != nil {
			return
		}
		if n < header.ICMPv4MinimumSize {
			continue
		}
		p.touch()
		to := p.from.Addr()
		if to.Is4() {
			err = p.association.g.link.send(header.IPv4ProtocolNumber, packet4(p.to.Addr(), to, p.own(b[:n])))
		} else {
			err = p.association.g.link.send(header.IPv6ProtocolNumber, packet6(p.to.Addr(), to, p.own(b[:n])))
		}
		if err != nil {
			return
		}
	}
}
