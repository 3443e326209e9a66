// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"golang.org/x/net/bpf"
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

// Operations of the classic BPF programs
// (include/uapi/linux/bpf_common.h).
const (
	ldW  = 0x20 // A = 32 bits at K
	jeqK = 0x15 // A == K?
	retK = 0x06 // return K
)

// pktType is the offset at which a program reads the type of the packet, which
// is PACKET_OUTGOING or another type (SKF_AD_OFF + SKF_AD_PKTTYPE,
// include/uapi/linux/filter.h).
const pktType = 0xfffff000 + 4

// onlyDirection prepends a check of the direction to a program.
func onlyDirection(d capture.Direction, prog []bpf.RawInstruction) []bpf.RawInstruction {
	if d == capture.Unknown {
		return prog
	}
	outgoing := bpf.RawInstruction{Op: jeqK, K: unix.PACKET_OUTGOING, Jt: 1}
	if d == capture.In {
		outgoing.Jt, outgoing.Jf = 0, 1
	}
	return append([]bpf.RawInstruction{{Op: ldW, K: pktType}, outgoing, {Op: retK}}, prog...)
}

// vlanWords matches the parts of a filter expression that check for a VLAN tag.
var vlanWords = regexp.MustCompile(`(?i)\bvlan\b|0x8100\b|0x88a8\b|\bq-in-q\b`)

// looksForVLAN reports whether an expression may check for a VLAN tag. The
// stack removes the tag before it runs a packet socket's filter, so such a
// filter must run after the tag is restored.
func looksForVLAN(expr string) bool { return vlanWords.MatchString(expr) }

// reject is a program that rejects all packets.
var reject = []bpf.RawInstruction{{Op: retK}}
