// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// CheckPeer returns an error if neither this user nor root serves a control socket.
// Another user must not see and answer the calls of this user's programs. The kernel
// reports who called listen(), in this process's user namespace.
func CheckPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, cerr); err != nil {
		return fmt.Errorf("getting the owner of the socket %s: %w", c.RemoteAddr(), err)
	}
	if int(cred.Uid) != os.Geteuid() && cred.Uid != 0 {
		return fmt.Errorf("%s is served by uid %d, which is neither this user nor root; remove it", c.RemoteAddr(), cred.Uid)
	}
	return nil
}
