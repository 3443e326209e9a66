// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

const (
	clientPort6 = 546
	serverPort6 = 547
)

// allServers is the multicast address of servers (RFC 8415, 7.1).
var allServers = netip.MustParseAddr("ff02::1:2")

// wire6 is a UDP socket on the interface's link-local address.
type wire6 struct {
	s  *stackconn.Socket
	to []byte
}

func openWire6(ctx context.Context, c *stackconn.Conn, link *Link, own netip.Addr) (*wire6, error) {
	s, err := c.Socket(ctx, unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		s.SetsockoptInt(ctx, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
		s.SetsockoptInt(ctx, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		s.Setsockopt(ctx, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, append([]byte(link.Name), 0)),
		s.Bind(ctx, inet6Addr(own, clientPort6, link.IfIndex)),
	)
	if err != nil {
		s.Close()
		return nil, err
	}
	return &wire6{s, inet6Addr(allServers, serverPort6, link.IfIndex)}, nil
}

func (w *wire6) send(ctx context.Context, msg []byte) error {
	_, err := w.s.SendTo(ctx, msg, 0, w.to)
	return err
}

// receive returns the next message and its server.
func (w *wire6) receive(ctx context.Context) ([]byte, netip.Addr, error) {
	b := make([]byte, maxDatagram)
	n, from, err := w.s.RecvFrom(ctx, b, unix.MSG_TRUNC)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	if n > len(b) || len(from) < 24 {
		return nil, netip.Addr{}, errNotOurs
	}
	return b[:n], netip.AddrFrom16([16]byte(from[8:24])), nil
}

func (w *wire6) close() { w.s.Close() }

// inet6Addr builds a struct sockaddr_in6.
func inet6Addr(a netip.Addr, port uint16, scope int) []byte {
	b := make([]byte, unix.SizeofSockaddrInet6)
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	binary.BigEndian.PutUint16(b[2:], port)
	ip := a.As16()
	copy(b[8:], ip[:])
	binary.NativeEndian.PutUint32(b[24:], uint32(scope))
	return b
}
