// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// noCookie is INET_DIAG_NOCOOKIE in both words: the cookie of time-wait sockets in old
// kernels.
const noCookie = 1<<64 - 1

// isAutobound is a filter with a single operation of four bytes, INET_DIAG_BC_AUTO. If it
// matches, it jumps to the end of the filter, which accepts the socket. Otherwise it
// jumps beyond the end, which rejects the socket.
var isAutobound = []byte{6, 4, 8, 0}

// MarkAutobound marks sockets of the Internet families whose port the kernel has chosen,
// by the rule of ss(8). The kernel's filter must report that no program requested the
// port, and the port must be in ip_local_port_range. The second condition is needed
// because the first one also holds for accepted connections.
func MarkAutobound(ctx context.Context, stack interface {
	Dialer
	FileReader
}, sockets []Socket) error {
	text, err := stack.ReadFile(ctx, "/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return err
	}
	var low, high uint16
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return fmt.Errorf("ip_local_port_range is %q: %w", text, err)
	}
	conn, err := stack.Netlink(ctx, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer conn.Close()
	type kind struct {
		proto  Proto
		family int
	}
	found := map[kind]map[uint64]bool{}
	for i, s := range sockets {
		if _, ok := protocols[s.Proto]; !ok || s.Cookie == noCookie || s.Local.Port() < low || s.Local.Port() > high {
			continue
		}
		k := kind{s.Proto, s.Family}
		if found[k] == nil {
			found[k] = map[uint64]bool{}
			some, err := listInet(conn, s.Proto, uint8(s.Family), isAutobound)
			if err != nil {
				return fmt.Errorf("reading which sockets have automatic ports: %w", err)
			}
			for _, x := range some {
				found[k][x.Cookie] = true
			}
		}
		sockets[i].Autobound = found[k][s.Cookie]
	}
	return nil
}
