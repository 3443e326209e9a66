// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// bufferSize has room for several of the largest frames in each direction. The
// host silently reduces it to its limit (net.core.wmem_max).
const bufferSize = 4 << 20

// Pair creates a link between this process and a stack, with one frame per
// message. It returns our end as a connection, and the stack's end as a
// descriptor.
func Pair(name string) (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the link of %s: %w", name, err)
	}
	widen(fds)
	ours := os.NewFile(uintptr(fds[0]), name)
	defer ours.Close()
	end := os.NewFile(uintptr(fds[1]), name+" link")
	conn, err := net.FileConn(ours)
	if err != nil {
		end.Close()
		return nil, nil, fmt.Errorf("creating the link of %s: %w", name, err)
	}
	return conn.(*net.UnixConn), end, nil
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
