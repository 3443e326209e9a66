// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// netlinkBuffer has room for the kernel's largest datagram: dumps use at most 32 KiB
// (netlink_dump, net/netlink/af_netlink.c), single answers use less than 64 KiB.
const netlinkBuffer = 64 << 10

// netlinkSocket implements netlink.Socket with calls in the stack. Its methods have no
// context parameter, so it keeps the context of Netlink.
type netlinkSocket struct {
	ctx     context.Context //nolint:containedctx // the interface's methods take none
	s       *Socket
	listens bool // member of a group: the time of messages is unknown
}

var _ netlink.Socket = (*netlinkSocket)(nil) //nolint:staticcheck // SA1019: deprecated in favour of Conn, which opens host sockets only

// Netlink opens a netlink connection of the given family (unix.NETLINK_ROUTE, ...) in the
// stack and joins groups. It works until ctx is done. If ctx has no deadline, the wait
// for an answer still has a limit, unless groups were joined: their messages may be far
// apart.
func (c *Conn) Netlink(ctx context.Context, family int, groups ...uint32) (*netlink.Conn, error) {
	s, err := c.Socket(ctx, unix.AF_NETLINK, unix.SOCK_RAW, family)
	if err != nil {
		return nil, err
	}
	pid, err := bindNetlink(ctx, s, groups)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening netlink family %d in the stack: %w", family, err)
	}
	n := &netlinkSocket{ctx: ctx, s: s, listens: len(groups) > 0}
	// The library checks the port id of answers.
	return netlink.NewConn(n, pid), nil
}

func bindNetlink(ctx context.Context, s *Socket, groups []uint32) (uint32, error) {
	// struct sockaddr_nl, include/uapi/linux/netlink.h. Port id 0: the stack picks.
	addr := make([]byte, unix.SizeofSockaddrNetlink)
	binary.NativeEndian.PutUint16(addr, unix.AF_NETLINK)
	if err := s.Bind(ctx, addr); err != nil {
		return 0, err
	}
	// The stack then says which attribute it refused, and why. Linux before 4.12 does
	// not support this option.
	if err := s.SetsockoptInt(ctx, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1); err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return 0, err
	}
	for _, g := range groups {
		if err := s.SetsockoptInt(ctx, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g)); err != nil {
			return 0, err
		}
	}
	name, err := s.Sockname(ctx)
	if err != nil {
		return 0, err
	}
	if len(name) < unix.SizeofSockaddrNetlink {
		return 0, errors.New("the stack returned a short netlink address")
	}
	return binary.NativeEndian.Uint32(name[4:]), nil
}

// Close closes the socket.
func (n *netlinkSocket) Close() error { return n.s.Close() }

// Send sends one message.
func (n *netlinkSocket) Send(m netlink.Message) error {
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	_, err = n.s.Send(n.ctx, b)
	return err
}

// SendMessages sends several messages in one datagram.
func (n *netlinkSocket) SendMessages(msgs []netlink.Message) error {
	var all []byte
	for _, m := range msgs {
		b, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		all = append(all, b...)
	}
	_, err := n.s.Send(n.ctx, all)
	return err
}

// SetBPF attaches a filter: the socket receives only messages that the program accepts.
func (n *netlinkSocket) SetBPF(program []bpf.RawInstruction) error {
	return n.s.AttachFilter(n.ctx, program)
}

// RemoveBPF detaches the filter.
func (n *netlinkSocket) RemoveBPF() error {
	return n.s.SetsockoptInt(n.ctx, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}

// Receive receives the messages of one datagram.
func (n *netlinkSocket) Receive() ([]netlink.Message, error) {
	ctx := n.ctx
	if !n.listens {
		var cancel context.CancelFunc
		ctx, cancel = limited(ctx, answerLimit)
		defer cancel()
	}
	b := make([]byte, netlinkBuffer)
	got, _, err := n.s.RecvFrom(ctx, b, unix.MSG_TRUNC)
	if err != nil {
		return nil, err
	}
	if got > len(b) {
		return nil, fmt.Errorf("netlink datagram of %d bytes, room for %d", got, len(b))
	}
	return parseNetlink(b[:got])
}

// ReceiveIter is like Receive, for newer versions of the library.
func (n *netlinkSocket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		msgs, err := n.Receive()
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		for _, m := range msgs {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// parseNetlink splits a datagram into messages (struct nlmsghdr,
// include/uapi/linux/netlink.h); each is padded to four bytes.
func parseNetlink(b []byte) ([]netlink.Message, error) {
	var msgs []netlink.Message
	for len(b) > 0 {
		if len(b) < unix.NLMSG_HDRLEN {
			return nil, fmt.Errorf("netlink message of %d bytes", len(b))
		}
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return nil, fmt.Errorf("netlink message says it has %d bytes of %d", size, len(b))
		}
		m := netlink.Message{Header: netlink.Header{
			Length:   uint32(size),
			Type:     netlink.HeaderType(binary.NativeEndian.Uint16(b[4:])),
			Flags:    netlink.HeaderFlags(binary.NativeEndian.Uint16(b[6:])),
			Sequence: binary.NativeEndian.Uint32(b[8:]),
			PID:      binary.NativeEndian.Uint32(b[12:]),
		}}
		m.Data = append([]byte(nil), b[unix.NLMSG_HDRLEN:size]...)
		msgs = append(msgs, m)
		b = b[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return msgs, nil
}
