// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// bufferSize holds some of the largest frames each way. Beyond the host's
// limits (net.core.wmem_max) it is cut down without an error.
const bufferSize = 4 << 20

// pair makes the link: our end as a connection, the other as a descriptor.
func pair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making its link: %w", err)
	}
	widen(fds)
	ours := os.NewFile(uintptr(fds[0]), "gateway")
	defer ours.Close()
	end := os.NewFile(uintptr(fds[1]), "gateway link")
	conn, err := net.FileConn(ours)
	if err != nil {
		end.Close()
		return nil, nil, fmt.Errorf("making its link: %w", err)
	}
	return conn, end, nil
}

// widen gives both ends of a link as much room as the host allows.
func widen(fds [2]int) {
	for _, fd := range fds {
		for force, opt := range map[int]int{unix.SO_SNDBUFFORCE: unix.SO_SNDBUF, unix.SO_RCVBUFFORCE: unix.SO_RCVBUF} {
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bufferSize) != nil {
				_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, bufferSize) // smaller is slower, no more
			}
		}
	}
}
