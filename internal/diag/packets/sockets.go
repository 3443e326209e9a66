// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/pkg/capture"
)

// States of a TCP connection that is being established
// (include/net/tcp_states.h).
const (
	synSent = sockdiag.State(unix.BPF_TCP_SYN_SENT)
	synRecv = sockdiag.State(unix.BPF_TCP_SYN_RECV)
)

// Sockets uses sock_diag to list the sockets that can own packets, with their
// processes and MPTCP connections.
func (st *Stack) Sockets(ctx context.Context) ([]capture.Socket, error) {
	var all []sockdiag.Socket
	for _, proto := range []sockdiag.Proto{sockdiag.TCP, sockdiag.UDP, sockdiag.MPTCP} {
		some, err := sockdiag.List(ctx, st.conn, proto)
		if err != nil && !errors.Is(err, sockdiag.ErrUnsupported) {
			return nil, err
		}
		all = append(all, some...)
	}
	if err := owners.Attribute(ctx, st.conn, all); err != nil {
		return nil, err
	}
	return convert(all), nil
}

// convert converts TCP and UDP sockets. It treats subflows as owned by their
// MPTCP connection.
func convert(all []sockdiag.Socket) []capture.Socket {
	byToken := map[uint64]*capture.Owner{}
	for i := range all {
		if s := &all[i]; s.MPTCP != nil && s.MPTCP.Token.N != 0 {
			byToken[s.MPTCP.Token.N] = ownerOf(s)
		}
	}
	var sockets []capture.Socket
	for i := range all {
		s := &all[i]
		c := capture.Socket{Local: s.Local, Remote: s.Remote, Owner: ownerOf(s), Early: s.State == synSent || s.State == synRecv}
		switch s.Proto {
		case sockdiag.TCP:
			c.Proto = unix.IPPROTO_TCP
		case sockdiag.UDP:
			c.Proto = unix.IPPROTO_UDP
		default:
			continue
		}
		if f := s.Subflow; f != nil && f.Token.N == 0 {
			c.Early = true
		} else if f != nil {
			c.Note = tokenOf(f)
			if c.Owner == nil {
				c.Owner = byToken[f.Token.N]
			}
		}
		sockets = append(sockets, c)
	}
	return sockets
}

// tokenOf describes an MPTCP subflow: the connection's token, as shown by
// `lklctl mptcp`, and the ID of the local address.
func tokenOf(f *sockdiag.Subflow) string {
	text := fmt.Sprintf("mptcp token %08x", f.Token.N)
	if f.ID.Known {
		text += fmt.Sprintf(" id %d", f.ID.N)
	}
	return text
}

// ownerOf returns the first process of a socket.
func ownerOf(s *sockdiag.Socket) *capture.Owner {
	if len(s.Processes) == 0 {
		return nil
	}
	p := s.Processes[0]
	return &capture.Owner{PID: p.PID, Comm: p.Comm, Inode: s.Inode, FDs: p.FDs}
}
