// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link/user/rules"
)

// This file opens all sockets of the host that send something for the stack.
// Besides published ports, which rules exclude, the rest of the package opens none.

// dialHost opens a socket of the host for a flow of the stack, if the rules
// permit it. The caller must pass the data of a watched flow to it.
func (g *Gateway) dialHost(ctx context.Context, network string, id stack.TransportEndpointID) (conn net.Conn, flow *rules.Flow, err error) {
	s := socketOf(network, id)
	if g.rules != nil {
		if flow, err = g.rules.Open(s); err != nil {
			return nil, nil, err
		}
	}
	if g.proxy != nil {
		if network == "udp" {
			conn, err = g.proxy.datagrams(ctx, s.To)
		} else {
			conn, err = g.proxy.dial(ctx, s.To)
		}
		return conn, flow, err
	}
	conn, err = g.cfg.dial(ctx, network, netip.AddrPortFrom(g.onHost(id.LocalAddress), id.LocalPort))
	if err != nil || g.rules == nil {
		return conn, nil, err
	}
	from, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err == nil {
		err = g.rules.Connected(s, from)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, flow, nil
}

// dial opens a socket without asking the rules, for example to a name server of the host.
func (c *Config) dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1, Control: c.prepare} // the stack decides about keep-alive
	return d.DialContext(ctx, network, to.String())
}

// newRules returns the rules of a gateway.
func newRules(cfg Config, tell func(string), log *egress.Log, audit *rules.Audit) *rules.Rules {
	o := rules.Options{Allow: cfg.Allow, Policy: cfg.Egress != "", Names: cfg.Hosts, RouteType: cfg.routeType, Log: log, Audit: audit, Notify: tell, Now: time.Now}
	for _, n := range cfg.networks() {
		o.Nets = append(o.Nets, n.address.Masked())
		o.Hosts = append(o.Hosts, n.host)
	}
	return rules.New(o)
}

// routeType asks for the route that a socket of this gateway takes.
func (c *Config) routeType(protocol string, from, to netip.AddrPort) (kind uint8, err error) {
	if c.Proxy != nil {
		return unix.RTN_UNICAST, nil // nothing is sent there from this machine
	}
	uid := os.Geteuid()
	if c.User != nil {
		uid = c.User.UID
	}
	return netdev.RouteType(protocol, uid, from, to)
}

// prepare gives a new socket to the target's user, because rules of the host's firewall
// and routing can depend on the owner. It also disables broadcasts, which the net package
// enables.
func (c *Config) prepare(_, _ string, conn syscall.RawConn) error {
	var err error
	cerr := conn.Control(func(fd uintptr) {
		if c.User != nil && c.User.UID != os.Geteuid() {
			err = replaceAs(c.User, int(fd))
		}
		if err == nil {
			err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 0))
		}
	})
	return cmp.Or(err, cerr)
}

// replaceAs replaces an unconnected socket by a new one that belongs to a user.
func replaceAs(u *runas.User, fd int) error {
	var kind [3]int
	for i, option := range []int{unix.SO_DOMAIN, unix.SO_TYPE, unix.SO_PROTOCOL} {
		var err error
		if kind[i], err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
	}
	made, err := socketAs(u, kind[0], kind[1]|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, kind[2])
	if err != nil {
		return err
	}
	defer unix.Close(made)
	return os.NewSyscallError("dup3", unix.Dup3(made, fd, unix.O_CLOEXEC))
}

// socketAs creates a socket of a user. chown(2) would change the owner for routing rules,
// but not for netfilter.
func socketAs(u *runas.User, domain, kind, protocol int) (fd int, err error) {
	runtime.LockOSThread() // the ids are those of a thread
	defer runtime.UnlockOSThread()
	gid, _ := unix.SetfsgidRetGid(u.GID)
	uid, _ := unix.SetfsuidRetUid(u.UID)
	is, _ := unix.SetfsuidRetUid(-1) // fails without an error
	fd, err = unix.Socket(domain, kind, protocol)
	_, _ = unix.SetfsuidRetUid(uid)
	_, _ = unix.SetfsgidRetGid(gid)
	switch {
	case err != nil:
		return -1, os.NewSyscallError("socket", err)
	case is != u.UID:
		unix.Close(fd)
		return -1, fmt.Errorf("creating a socket of user %s: %w", u, unix.EPERM)
	}
	return fd, nil
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

// pingSocket opens a connected ICMP socket of the host.
func (c *Config) pingSocket(to netip.Addr) (*net.UDPConn, error) {
	family, protocol, sa := unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.As16()})
	if to.Is4() {
		family, protocol, sa = unix.AF_INET, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: to.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if errors.Is(err, unix.EACCES) {
		return nil, errNoPing
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "ping")
	defer f.Close()
	if c.User != nil && c.User.UID != os.Geteuid() {
		if err := replaceAs(c.User, fd); err != nil {
			return nil, err
		}
	}
	if err := unix.Connect(fd, sa); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}
