// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

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
