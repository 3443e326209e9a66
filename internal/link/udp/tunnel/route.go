// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Route returns the MTU of the host's route to a gateway through the device via.
// It sends nothing.
func Route(ctx context.Context, remote netip.AddrPort, via string) (mtu int, err error) {
	c, err := open(ctx, remote.Addr(), via)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cerr error
	if err := raw.Control(func(fd uintptr) { mtu, cerr = routeMTU(int(fd), remote) }); err != nil {
		return 0, err
	}
	return mtu, cerr
}

// resolveLimit bounds the lookup of a name.
const resolveLimit = 10 * time.Second

// Way is a way to the other end of a tunnel.
type Way struct {
	Remote netip.AddrPort
	Room   int // the largest MTU of the tunnel
}

// Find returns the ways to HOST:PORT for which the host has a route through the
// device via. It sends nothing except queries for the name.
func Find(ctx context.Context, to, via string) (ways []Way, err error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", host, err)
	}
	var errs []error
	for _, a := range addrs {
		remote := netip.AddrPortFrom(a.Unmap(), uint16(number))
		mtu, err := Route(ctx, remote, via)
		if err == nil {
			ways = append(ways, Way{remote, mtu - overhead(remote.Addr())})
			continue
		}
		through := ""
		if via != "" {
			through = " through " + via
		}
		errs = append(errs, fmt.Errorf("the host cannot reach %s%s: %w", remote.Addr(), through, err))
	}
	if len(ways) > 0 {
		return ways, nil
	}
	return nil, errors.Join(errs...)
}

// CheckPort returns an error if this user cannot open a UDP port.
func CheckPort(ctx context.Context, port uint16) error {
	c, err := new(net.ListenConfig).ListenPacket(ctx, "udp", fmt.Sprintf(":%d", port))
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("port %d is in use; choose another port", port)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("this user may not bind port %d; choose a port from 1024 upwards, or lower net.ipv4.ip_unprivileged_port_start", port)
	case err != nil:
		return fmt.Errorf("port %d: %w", port, err)
	}
	return c.Close()
}

// CheckVia returns an error if a socket of this user cannot be bound to a device.
func CheckVia(ctx context.Context) error {
	var berr error
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { berr = unix.BindToDevice(int(fd), "lo") })
	}}
	c, err := lc.ListenPacket(ctx, "udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.Close()
	return berr
}

// routeMTU connects a datagram socket, which looks up the route.
func routeMTU(fd int, remote netip.AddrPort) (int, error) {
	var to unix.Sockaddr
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if a := remote.Addr(); a.Is4() {
		to = &unix.SockaddrInet4{Port: int(remote.Port()), Addr: a.As4()}
	} else {
		six := &unix.SockaddrInet6{Port: int(remote.Port()), Addr: a.As16()}
		if ifi, err := net.InterfaceByName(a.Zone()); err == nil {
			six.ZoneId = uint32(ifi.Index)
		}
		to, level, option = six, unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	if err := unix.Connect(fd, to); err != nil {
		return 0, err
	}
	mtu, err := unix.GetsockoptInt(fd, level, option)
	if err != nil {
		return 0, fmt.Errorf("reading the MTU of the route: %w", err)
	}
	return mtu, nil
}
