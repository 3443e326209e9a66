// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/pkg/config"
)

// door is a port of the host that leads to one of the stack's ports.
type door struct {
	port uint16 // the stack's port
	tcp  *net.TCPListener
	udp  *net.UDPConn
}

func (d *door) close() {
	if d.tcp != nil {
		d.tcp.Close()
	}
	if d.udp != nil {
		d.udp.Close()
	}
}

// CheckPublish returns an error if one of the ports cannot be opened on the
// host.
func CheckPublish(all []config.Publish) error {
	doors, err := open(all)
	for _, d := range doors {
		d.close()
	}
	return err
}

// open opens all of the ports, or none.
func open(all []config.Publish) ([]*door, error) {
	var doors []*door
	for _, p := range all {
		for _, a := range hostAddrs(p) {
			d, err := openDoor(p, a)
			if errors.Is(err, unix.EADDRNOTAVAIL) && !p.Addr.IsValid() || errors.Is(err, unix.EAFNOSUPPORT) && a.Is6() {
				continue // the host has no IPv6
			}
			if err != nil {
				for _, d := range doors {
					d.close()
				}
				return nil, fmt.Errorf("--publish %s: %w", p, doorError(p, a, err))
			}
			doors = append(doors, d)
		}
	}
	return doors, nil
}

// hostAddrs returns the addresses at which a port is opened: the host's
// loopback, unless the user gave an address. Only the user decides which ports
// others can reach.
func hostAddrs(p config.Publish) []netip.Addr {
	if p.Addr.IsValid() {
		return []netip.Addr{p.Addr}
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

func openDoor(p config.Publish, a netip.Addr) (*door, error) {
	family := "4"
	if a.Is6() {
		family = "6"
	}
	at := netip.AddrPortFrom(a, p.HostPort).String()
	// The stack decides about keep-alive.
	lc := net.ListenConfig{KeepAlive: -1}
	if !p.UDP {
		l, err := lc.Listen(context.Background(), "tcp"+family, at)
		if err != nil {
			return nil, err
		}
		return &door{port: p.Port, tcp: l.(*net.TCPListener)}, nil
	}
	c, err := lc.ListenPacket(context.Background(), "udp"+family, at)
	if err != nil {
		return nil, err
	}
	return &door{port: p.Port, udp: c.(*net.UDPConn)}, nil
}

func doorError(p config.Publish, a netip.Addr, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("port %d of %s is in use; choose another port", p.HostPort, a)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("uid %d may not bind port %d; choose a port from 1024 upwards, or lower net.ipv4.ip_unprivileged_port_start", os.Geteuid(), p.HostPort)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this host", a)
	}
	return err
}
