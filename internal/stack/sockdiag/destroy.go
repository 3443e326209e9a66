// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sockDestroy is SOCK_DESTROY, include/uapi/linux/sock_diag.h.
const sockDestroy = 21

// Destroy ends TCP sockets at once, like ss -K: undelivered data is lost. It succeeds for
// sockets that have already ended.
func Destroy(ctx context.Context, d Dialer, sockets []Socket) error {
	_, err := Kill(ctx, d, sockets)
	return err
}

// Kill is like Destroy, for every kind of socket of the Internet families, and returns
// the sockets that it has ended. For an MPTCP connection the kernel ends only the
// subflows.
func Kill(ctx context.Context, d Dialer, sockets []Socket) (killed []Socket, err error) {
	if len(sockets) == 0 {
		return nil, nil
	}
	conn, err := d.Netlink(ctx, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var errs []error
	for _, s := range sockets {
		_, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: sockDestroy, Flags: netlink.Request | netlink.Acknowledge},
			Data:   s.request(),
		})
		var no syscall.Errno
		switch {
		case err == nil:
			killed = append(killed, s)
		case errors.As(err, &no) && no == syscall.ENOENT:
		default:
			errs = append(errs, fmt.Errorf("closing the socket %s to %s: %w", s.Local, s.Remote, err))
		}
	}
	return killed, errors.Join(errs...)
}

// request returns the struct inet_diag_req_v2 for this socket only.
func (s *Socket) request() []byte {
	req := make([]byte, sizeInetReq)
	req[0], req[1] = uint8(s.Family), uint8(protocols[s.Proto])
	if s.Proto == Raw {
		req[3] = uint8(s.Local.Port()) // sdiag_raw_protocol
	}
	binary.NativeEndian.PutUint32(req[4:], allStates)
	id := req[8:] // struct inet_diag_sockid
	binary.BigEndian.PutUint16(id, s.Local.Port())
	binary.BigEndian.PutUint16(id[2:], s.Remote.Port())
	copy(id[4:20], s.Local.Addr().AsSlice())
	copy(id[20:36], s.Remote.Addr().AsSlice())
	binary.NativeEndian.PutUint32(id[36:], uint32(s.IfIndex))
	binary.NativeEndian.PutUint32(id[40:], uint32(s.Cookie))
	binary.NativeEndian.PutUint32(id[44:], uint32(s.Cookie>>32))
	return req
}
