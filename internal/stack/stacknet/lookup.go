// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Reaches reports whether a routing table leads from src (the zero Addr: any address) to dst
// through an interface (0: any), like `ip route get fibmatch`. Without fibmatch, IPv4 treats a destination as a
// neighbour if no route leads there through the interface
// (ip_route_output_key_hash_rcu(), net/ipv4/route.c).
func (n *Netlink) Reaches(dst, src netip.Addr, ifindex int) (bool, error) {
	head := make([]byte, unix.SizeofRtMsg)
	head[0] = family(dst)
	head[1], head[2] = uint8(dst.BitLen()), uint8(src.BitLen())
	binary.NativeEndian.PutUint32(head[8:], unix.RTM_F_FIB_MATCH)
	_, err := n.r.request(unix.RTM_GETROUTE, 0, head, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.RTA_DST, dst.AsSlice())
		if src.IsValid() {
			ae.Bytes(unix.RTA_SRC, src.AsSlice())
		}
		if ifindex != 0 {
			ae.Uint32(unix.RTA_OIF, uint32(ifindex))
		}
	})
	for _, no := range []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EACCES, syscall.EINVAL} {
		// The matching route does not exist, or has the type unreachable,
		// prohibit or blackhole (fib_props, net/ipv4/fib_semantics.c).
		if errors.Is(err, no) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("looking up the stack's route from %v to %v: %w", src, dst, err)
	}
	return true, nil
}

// Links lists the stack's interfaces.
func Links(ctx context.Context, c *stackconn.Conn) ([]LinkState, error) {
	r, err := openRoute(ctx, c)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.links()
}

// Addresses lists the addresses of the stack's interfaces.
func Addresses(ctx context.Context, c *stackconn.Conn) ([]Address, error) {
	r, err := openRoute(ctx, c)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.addresses()
}

// Names finds the interface of a socket.
type Names struct {
	All     []string // of the interfaces, as the stack lists them
	byIndex map[int]string
	byAddr  map[netip.Addr]string
}

// ReadNames creates Names from the present interfaces and addresses of a stack.
func ReadNames(ctx context.Context, c *stackconn.Conn) (*Names, error) {
	links, err := Links(ctx, c)
	if err != nil {
		return nil, err
	}
	addrs, err := Addresses(ctx, c)
	if err != nil {
		return nil, err
	}
	return NewNames(links, addrs), nil
}

// NewNames creates Names from the stack's interfaces and addresses.
func NewNames(links []LinkState, addrs []Address) *Names {
	n := &Names{byIndex: map[int]string{}, byAddr: map[netip.Addr]string{}}
	for _, l := range links {
		n.All = append(n.All, l.Name)
		n.byIndex[l.Index] = l.Name
	}
	for _, a := range addrs {
		n.byAddr[a.Prefix.Addr()] = n.byIndex[a.IfIndex]
	}
	return n
}

// Of returns the interface with that index, to which a socket is bound, or else the
// interface that has the socket's local address. The result is empty if the socket may
// use any interface.
func (n *Names) Of(index int, local netip.Addr) string {
	if name, ok := n.byIndex[index]; ok {
		return name
	}
	return n.byAddr[local.Unmap()]
}
