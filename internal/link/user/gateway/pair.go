// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// bufferSize has room for several of the largest frames in each direction. The
// host silently reduces it to its limit (net.core.wmem_max).
const bufferSize = 4 << 20

// pair creates the link. It returns our end as a connection, and the other end
// as a descriptor.
func pair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("creating its link: %w", err)
	}
	widen(fds)
	ours := os.NewFile(uintptr(fds[0]), "gateway")
	defer ours.Close()
	end := os.NewFile(uintptr(fds[1]), "gateway link")
	conn, err := net.FileConn(ours)
	if err != nil {
		end.Close()
		return nil, nil, fmt.Errorf("creating its link: %w", err)
	}
	return conn, end, nil
}

// widen makes the buffers of both ends as large as the host allows.
func widen(fds [2]int) {
	for _, fd := range fds {
		for force, opt := range map[int]int{unix.SO_SNDBUFFORCE: unix.SO_SNDBUF, unix.SO_RCVBUFFORCE: unix.SO_RCVBUF} {
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bufferSize) != nil {
				_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, bufferSize) // a smaller buffer is only slower
			}
		}
	}
}
