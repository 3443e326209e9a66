// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"

	"github.com/lklrun/lklrun/internal/link/user/rules"
)

// This file opens all sockets of the host that send something for the stack.
// Besides published ports, which rules exclude, the rest of the package opens none.

// dialHost opens a socket of the host to addr:port of the stack, if the rules
// permit it.
func (g *Gateway) dialHost(ctx context.Context, network string, addr tcpip.Address, port uint16) (net.Conn, error) {
	if g.rules != nil {
		if err := g.rules.Open(network, netip.AddrPortFrom(peer(addr), port)); err != nil {
			return nil, err
		}
	}
	// The stack decides about keep-alive.
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, network, netip.AddrPortFrom(g.onHost(addr), port).String())
}

// dialServer opens a socket to a name server of the host.
func dialServer(ctx context.Context, network string, server netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, network, server.String())
}

// newRules returns the rules of a gateway.
func newRules(cfg Config, tell func(string)) *rules.Rules {
	o := rules.Options{Allow: cfg.Allow, Local: local, Tell: tell, Now: time.Now}
	for _, n := range cfg.networks() {
		o.Nets = append(o.Nets, n.address.Masked())
		o.Hosts = append(o.Hosts, n.host)
	}
	return rules.New(o)
}

// local reports whether an address belongs to this machine: to one of its
// interfaces, or by a local route.
func local(a netip.Addr) (bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(all, func(one net.Addr) bool {
		p, err := netip.ParsePrefix(one.String())
		return err == nil && p.Addr().Unmap().WithZone("") == a
	}) {
		return true, nil
	}
	source := sourceOf(a)
	return source == a || source.IsLoopback(), nil
}

// sourceOf returns the source address of packets to an address. For an address
// with a local route, it is usually the address itself. The result is invalid if there is
// no route.
func sourceOf(to netip.Addr) netip.Addr {
	fd, err := probe(to)
	if err != nil {
		return netip.Addr{}
	}
	defer unix.Close(fd)
	sa, _ := unix.Getsockname(fd) // cannot fail for a connected socket
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

// probe connects a datagram socket, which looks up the route to an address and
// sends nothing.
func probe(to netip.Addr) (fd int, err error) {
	const discard = 9
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: discard, Addr: to.As16()})
	if to.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: discard, Addr: to.As4()}
	}
	if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err = unix.Connect(fd, sa); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
