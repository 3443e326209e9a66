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

// Reaches says whether a routing table leads from src to dst by an interface
// (0: by any), as `ip route get fibmatch` finds out. Without that flag IPv4 takes
// a destination for a neighbour if nothing else leads there by the interface
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
		// What the matching route is: none, or of type unreachable, prohibit,
		// blackhole (fib_props, net/ipv4/fib_semantics.c).
		if errors.Is(err, no) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("asking the stack for a route from %v to %v: %w", src, dst, err)
	}
	return true, nil
}
