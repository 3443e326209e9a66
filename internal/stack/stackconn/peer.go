// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Peer returns the process at the other end of a socket: the one that has called connect()
// or listen(). The uid is that of this process's user namespace.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, cerr); err != nil {
		return nil, fmt.Errorf("getting the owner of the socket %s: %w", c.RemoteAddr(), err)
	}
	return cred, nil
}

// CheckPeer returns an error if neither this user nor root serves a control socket.
// Another user must not see and answer the calls of this user's programs.
func CheckPeer(c *net.UnixConn) error {
	cred, err := Peer(c)
	if err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() && cred.Uid != 0 {
		return fmt.Errorf("%s is served by uid %d, which is neither this user nor root; remove it", c.RemoteAddr(), cred.Uid)
	}
	return nil
}
