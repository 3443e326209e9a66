// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// bind holds the sockets of WireGuard. A client has one, on one device of the
// host, which WireGuard's own sockets do not support. A gateway has one for each
// address family, and answers from the address that a client has used, which
// WireGuard's own sockets forget if the kernel coalesces datagrams.
type bind struct {
	remote netip.AddrPort // of a client
	via    string         // of a client
	port   uint16         // of a gateway
	failed func(error)    // called when the host has no way to the gateway; may be nil

	mu      sync.Mutex
	sockets []*socket
}

// Open opens new sockets. A client also gets a new port, because the old one may
// belong to a state of a NAT that no longer works.
func (b *bind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sockets) > 0 {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	var err error
	if b.port == 0 {
		err = b.client()
	} else {
		err = b.gateway()
	}
	if err != nil {
		b.close()
		return nil, 0, err
	}
	var all []conn.ReceiveFunc
	for _, s := range b.sockets {
		all = append(all, s.receive)
	}
	return all, uint16(b.sockets[0].conn.LocalAddr().(*net.UDPAddr).Port), nil
}

func (b *bind) client() error {
	c, err := open(context.Background(), b.remote.Addr(), b.via)
	if err == nil {
		b.sockets = append(b.sockets, newSocket(c, b.remote.Addr().Is4()))
	}
	return err
}

// gateway opens a socket for IPv4, and one for IPv6 if the host has it.
func (b *bind) gateway() error {
	for _, network := range []string{"udp4", "udp6"} {
		c, err := net.ListenUDP(network, &net.UDPAddr{Port: int(b.port)})
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return err
		}
		s := newSocket(c, network == "udp4")
		b.sockets = append(b.sockets, s)
		if err := s.rememberAddress(); err != nil {
			return err
		}
	}
	if len(b.sockets) == 0 {
		return unix.EAFNOSUPPORT
	}
	return nil
}

// open returns a socket whose datagrams to an address of the given family leave
// through the device via. Since Linux 5.7, this requires no rights. On older
// kernels, the socket has the address of the device instead, and the host's
// routes must be chosen by source address.
func open(ctx context.Context, remote netip.Addr, via string) (*net.UDPConn, error) {
	network, any := "udp4", netip.IPv4Unspecified()
	if remote.Is6() {
		network, any = "udp6", netip.IPv6Unspecified()
	}
	var denied error
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var berr error
		if via == "" {
			return nil
		}
		err := raw.Control(func(fd uintptr) { berr = unix.BindToDevice(int(fd), via) })
		if errors.Is(berr, unix.EPERM) {
			denied, berr = berr, nil
		}
		if errors.Is(berr, unix.ENODEV) {
			berr = fmt.Errorf("the host has no device %s (%w)", via, berr)
		}
		return errors.Join(err, berr)
	}}
	c, err := lc.ListenPacket(ctx, network, netip.AddrPortFrom(any, 0).String())
	if err == nil && denied != nil {
		c.Close()
		var own netip.Addr
		if own, err = addressOf(via, remote); err == nil {
			lc.Control = nil
			c, err = lc.ListenPacket(ctx, network, netip.AddrPortFrom(own, 0).String())
		}
	}
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// addressOf returns an address of a device that can reach remote.
func addressOf(device string, remote netip.Addr) (netip.Addr, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("device %s: %w", device, err)
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("device %s: %w", device, err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() == remote.Is4() && !p.Addr().IsLinkLocalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("device %s has no address that could reach %s (%w)", device, remote, unix.EADDRNOTAVAIL)
}

// Send sends datagrams.
func (b *bind) Send(bufs [][]byte, to conn.Endpoint) error {
	e, ok := to.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sockets {
		if s.four != e.DstIP().Is4() {
			continue
		}
		err := s.send(bufs, e)
		if err != nil && b.failed != nil && isUnreachable(err) {
			b.failed(err)
		}
		return err
	}
	return net.ErrClosed
}

// Close closes the sockets. Their receivers then return net.ErrClosed.
func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.close()
}

func (b *bind) close() error {
	var errs []error
	for _, s := range b.sockets {
		errs = append(errs, s.conn.Close())
	}
	b.sockets = nil
	return errors.Join(errs...)
}

// SetMark does nothing, because marks require CAP_NET_ADMIN.
func (b *bind) SetMark(uint32) error { return nil }

// BatchSize is the number of datagrams per system call.
func (b *bind) BatchSize() int { return socketBatch }

// ParseEndpoint parses ADDRESS:PORT.
func (b *bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return &endpoint{addr: net.UDPAddrFromAddrPort(a)}, nil
}
