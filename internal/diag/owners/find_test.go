// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// TestMatch checks that only a socket that is certain names processes.
func TestMatch(t *testing.T) {
	at := netip.MustParseAddrPort
	socket := func(protocol sockdiag.Proto, inode uint64, local, remote string, fds ...int) sockdiag.Socket {
		return sockdiag.Socket{Proto: protocol, Inode: inode, Local: at(local), Remote: at(remote), Processes: []sockdiag.Process{{PID: int(inode), Comm: "x", FDs: fds}}}
	}
	all := []sockdiag.Socket{
		socket("tcp", 1, "10.0.0.2:1000", "10.0.0.1:80", 3),
		socket("tcp", 2, "10.0.0.2:1000", "10.0.0.1:81", 3),
		socket("tcp", 3, "[::ffff:10.0.0.2]:1001", "[::ffff:10.0.0.1]:80", 3),
		socket("tcp", 4, "10.0.0.2:1002", "10.0.0.1:80"),
		socket("udp", 5, "0.0.0.0:1000", "0.0.0.0:0", 3),
		socket("udp", 6, "10.0.0.2:1001", "10.0.0.1:80", 3),
		socket("udp", 7, "10.0.0.2:1002", "10.0.0.1:80", 3),
		socket("udp", 8, "[::]:1002", "[::]:0", 3),
	}
	for _, tc := range []struct {
		protocol sockdiag.Proto
		from, to string
		pid      int
		err      error
	}{
		{"tcp", "10.0.0.2:1000", "10.0.0.1:80", 1, nil},
		{"tcp", "10.0.0.2:1000", "10.0.0.1:81", 2, nil},
		{"tcp", "10.0.0.2:1000", "10.0.0.1:82", 0, errNoSocket},
		{"tcp", "10.0.0.2:1001", "10.0.0.1:80", 3, nil},
		{"tcp", "10.0.0.2:1002", "10.0.0.1:80", 0, errNoOwner}, // only its creator is known
		{"udp", "10.0.0.2:1000", "10.0.0.1:80", 5, nil},
		{"udp", "10.0.0.2:1001", "10.0.0.1:80", 6, nil},
		{"udp", "10.0.0.2:1001", "10.0.0.3:80", 0, errNoSocket},
		{"udp", "10.0.0.2:1002", "10.0.0.1:80", 0, errManyOwners},
		{"udp", "10.0.0.2:1002", "10.0.0.3:80", 8, nil},
	} {
		held, err := match(all, tc.protocol, at(tc.from), at(tc.to))
		if !errors.Is(err, tc.err) || (len(held) == 1) != (tc.err == nil) || err == nil && held[0].PID != tc.pid {
			t.Errorf("%s %s to %s: %v, %v; want %d", tc.protocol, tc.from, tc.to, held, err, tc.pid)
		}
	}
}
