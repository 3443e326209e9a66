// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Reaches reports whether a routing table leads from src to dst through an interface (0:
// any), like `ip route get fibmatch`. Without fibmatch, IPv4 treats a destination as a
// neighbour if no route leads there through the interface
// (ip_route_output_key_hash_rcu(), net/ipv4/route.c).
func (n *Netlink) Reaches(dst, src netip.Addr, ifindex int) (bool, error) {
	head := make([]byte, unix.SizeofRtMsg)
	head[0] = family(dst)
	head[1], head[2] = uint8(dst.BitLen()), uint8(src.BitLen())
	binary.NativeEndian.PutUint32(head[8:], unix.RTM_F_FIB_MATCH)
	_, err := n.r.request(unix.RTM_GETROUTE, 0, head, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.RTA_DST, dst.AsSlice())
		ae.Bytes(unix.RTA_SRC, src.AsSlice())
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
