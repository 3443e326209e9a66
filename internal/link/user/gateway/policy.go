// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/link/user/rules"
	"github.com/lklrun/lklrun/pkg/config"
)

// This file applies the rules (--allow) to packets and to name queries.

// streamLimit bounds the time between two queries on a TCP connection.
const streamLimit = 10 * time.Second

// openOutput opens a file for output, before the program runs, which could exchange the file
// that a path means.
func openOutput(name string, flags int) (*os.File, error) {
	// A pipe without a reader must not stop the start.
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK|flags, 0o600)
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		if err = pe.Err; errors.Is(err, unix.ENXIO) {
			err = errors.New("no process reads this pipe")
		}
		err = fmt.Errorf("%s: %w", name, err)
	}
	return f, err
}

// openAudit opens the file for the policy of an audit. The result is nil if there is no audit.
func openAudit(spec string) (*rules.Audit, error) {
	name := (&config.Run{Egress: spec}).Audit()
	if name == "" {
		return nil, nil
	}
	f, err := openOutput(name, 0)
	if err != nil {
		return nil, err
	}
	return rules.NewAudit(f), nil
}

// openLog opens the log of decisions. The result is nil if there is none.
func openLog(name string, tell func(string)) (*egress.Log, error) {
	if name == "" {
		return nil, nil
	}
	f, err := openOutput(name, os.O_APPEND)
	if err != nil {
		return nil, err
	}
	return egress.NewLog(f, func(err error) {
		tell(fmt.Sprintf("--egress-log: %v; later decisions are missing", err))
	}), nil
}

// filterRefused answers the first packet of a flow that the rules refuse, and
// passes other packets to next. It only makes the program's call fail at once:
// dialHost applies the same rules.
func (g *Gateway) filterRefused(protocol string, next packetHandler) packetHandler {
	if g.rules == nil {
		return next
	}
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		if !begins(pkt) || g.isDNS(id.LocalAddress, id.LocalPort) {
			return next(id, pkt)
		}
		s := socketOf(protocol, id)
		report := g.rules.Refuse(s)
		if report == nil {
			return next(id, pkt)
		}
		packet, to := pkt.ToView().AsSlice(), s.To.Addr()
		answer := func() {
			_ = report()
			// Packets to multicast and similar addresses get no ICMP error
			// (RFC 1122, 3.2.2).
			if to.IsGlobalUnicast() || to.IsLinkLocalUnicast() {
				g.link.sendError(packet, prohibited, netip.Addr{})
			}
		}
		if !g.rules.Logs() {
			answer()
			return true
		}
		// The log looks for the process, which the router must not wait for. The program waits
		// for the answer with its socket. Above the limit, the packet is lost, as on a wire.
		select {
		case g.refusing <- struct{}{}:
			go func() {
				answer()
				<-g.refusing
			}()
		default:
		}
		return true
	}
}

// maxRefusing is the maximum number of refused packets for which the log looks for the process.
const maxRefusing = 1024

// socketOf returns the stack's socket of a flow.
func socketOf(protocol string, id stack.TransportEndpointID) rules.Socket {
	return rules.Socket{
		Protocol: protocol,
		From:     netip.AddrPortFrom(peer(id.RemoteAddress), id.RemotePort), To: netip.AddrPortFrom(peer(id.LocalAddress), id.LocalPort),
	}
}

// logDropped reports a packet to elsewhere that is neither TCP nor UDP. Such
// packets to multicast addresses belong to the stack itself, for example to
// neighbour discovery.
func (l *link) logDropped(protocol tcpip.NetworkProtocolNumber, packet []byte) {
	var to netip.Addr
	var transport uint8
	switch {
	case protocol == header.IPv4ProtocolNumber && len(packet) >= header.IPv4MinimumSize:
		to, transport = netip.AddrFrom4([4]byte(packet[16:20])), packet[9]
	case protocol == header.IPv6ProtocolNumber && len(packet) >= header.IPv6MinimumSize:
		to, transport = netip.AddrFrom16([16]byte(packet[24:40])), packet[6]
	default:
		return
	}
	name := "IP protocol " + strconv.Itoa(int(transport))
	switch tcpip.TransportProtocolNumber(transport) {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return
	case header.ICMPv4ProtocolNumber, header.ICMPv6ProtocolNumber:
		if l.cfg.own(to) {
			return
		}
		name = "icmp"
	}
	if to.IsMulticast() || protocol == header.IPv6ProtocolNumber && (transport == 0 || transport == 43 || transport == 44 || transport == 60) {
		return // the router interprets extension headers
	}
	l.other(name, to)
}

// ruled answers a query with exchange, if the rules permit it. The name server
// receives a query without other data of the program. The answer is nil if query
// is not a query.
func (g *Gateway) ruled(query []byte, s rules.Socket, exchange func(query []byte) []byte) []byte {
	if g.rules == nil {
		return exchange(query)
	}
	q, refusal := g.rules.Query(query, s)
	if q == nil {
		return refusal
	}
	return q.Answer(exchange(q.Wire))
}

// answerStream serves the queries on a TCP connection.
func (g *Gateway) answerStream(ctx context.Context, req *request) {
	var wq waiter.Queue
	s := socketOf("tcp", req.ID())
	ep, terr := req.CreateEndpoint(&wq)
	req.Complete(false)
	if terr != nil {
		g.log.Debug("gateway: accepting", "error", terr)
		return
	}
	conn := gonet.NewTCPConn(&wq, ep)
	defer conn.Close()
	g.serveStream(ctx, conn, ep.Abort, s)
}

// serveStream serves the queries of a socket of the stack until abort.
func (g *Gateway) serveStream(ctx context.Context, conn net.Conn, abort func(), s rules.Socket) {
	defer context.AfterFunc(ctx, abort)()
	a := newAssociation(g, udpPairs, abort)
	defer a.table.remove(&a.entry)
	for {
		if err := conn.SetDeadline(time.Now().Add(streamLimit)); err != nil {
			return
		}
		query, err := readMessage(conn)
		if err != nil {
			return
		}
		a.touch()
		answer := g.ruled(query, s, func(query []byte) []byte {
			if g.proxy != nil {
				return g.proxy.answer(query)
			}
			return g.dns.exchangeTCP(ctx, query)
		})
		if answer == nil || writeMessage(conn, answer) != nil {
			return
		}
	}
}

// exchangeTCP is like exchange, over TCP.
func (r *resolver) exchangeTCP(ctx context.Context, query []byte) []byte {
	conn, err := r.dialTCP(ctx)
	if err != nil {
		return serverFailure(query)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(2 * queryLimit)); err != nil {
		return serverFailure(query)
	}
	if writeMessage(conn, query) != nil {
		return serverFailure(query)
	}
	got, err := readMessage(conn)
	if err != nil {
		return serverFailure(query)
	}
	return got
}

// readMessage reads a DNS message and its length (RFC 1035, 4.2.2).
func readMessage(from io.Reader) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(from, n[:]); err != nil {
		return nil, err
	}
	msg := make([]byte, binary.BigEndian.Uint16(n[:]))
	_, err := io.ReadFull(from, msg)
	return msg, err
}

func writeMessage(to net.Conn, msg []byte) error {
	if len(msg) > 1<<16-1 {
		return errors.New("the message is too long")
	}
	_, err := to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err
}
