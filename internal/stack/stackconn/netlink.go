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

// netlinkAnswers is the number of datagrams that one call receives. It is enough for a short
// dump with its end, and for the answers to a batch of changes.
const netlinkAnswers = 16

// netlinkSocket implements netlink.Socket with calls in the stack. Its methods have no
// context parameter, so it keeps the context of Netlink.
type netlinkSocket struct {
	ctx      context.Context //nolint:containedctx // the interface's methods take none
	s        *Socket
	isMember bool      // member of a group: the time of messages is unknown
	answer   *received // the answer to what Send has sent; nil: Receive has taken it
	read     [][]byte  // datagrams that Receive has not returned yet
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
	n := &netlinkSocket{ctx: ctx, s: s, isMember: len(groups) > 0}
	// The library checks the port id of answers.
	return netlink.NewConn(n, pid), nil
}

// bindNetlink makes all calls at once, because each answer takes long compared with its
// call.
func bindNetlink(ctx context.Context, s *Socket, groups []uint32) (uint32, error) {
	// struct sockaddr_nl, include/uapi/linux/netlink.h. Port id 0: the stack picks.
	addr := make([]byte, unix.SizeofSockaddrNetlink)
	binary.NativeEndian.PutUint16(addr, unix.AF_NETLINK)
	name := make([]byte, unix.SizeofSockaddrNetlink)
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(name)))
	calls := []Call{
		s.bind(addr),
		s.setsockopt(unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, integer(1)),
		{Nr: unix.SYS_GETSOCKNAME, Args: []any{s.fd, Out(name), InOut(size)}},
	}
	for _, g := range groups {
		calls = append(calls, s.setsockopt(unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, integer(int(g))))
	}
	_, errs := s.c.all(ctx, calls...)
	for i, err := range errs {
		// The stack then says which attribute it refused, and why. Linux before
		// 4.12 does not support this option.
		if i == 1 && errors.Is(err, unix.ENOPROTOOPT) {
			continue
		}
		if err != nil {
			return 0, err
		}
	}
	if binary.LittleEndian.Uint32(size) < unix.SizeofSockaddrNetlink {
		return 0, errors.New("the stack returned a short netlink address")
	}
	return binary.NativeEndian.Uint32(name[4:]), nil
}

// received is a call that receives messages into buffers that are larger than most
// messages. Only the bytes of the messages are transferred.
type received struct {
	call *Pending
	hdr  *Buffer
	data []*Buffer
	word int
}

// struct mmsghdr, include/linux/socket.h: seven words, of which two have 32 bits, then
// msg_len. These are the numbers of the words.
const (
	msgIov, msgIovLen, msgFlags, msgLen = 2, 3, 6, 7
	msgWords                            = 8
)

// receive returns a call that waits for messages. A lost message of a group is an error of the next
// call. A call that has received another message would hide it, so members receive one
// message at a time.
func (n *netlinkSocket) receive(ctx context.Context) (*received, Call) {
	w, most := n.s.c.WordSize(), netlinkAnswers
	if n.isMember {
		most = 1
	}
	r := &received{hdr: InOut(make([]byte, most*msgWords*w)), word: w}
	for i := range most {
		at, iov := i*msgWords*w, make([]byte, 2*w)
		binary.LittleEndian.PutUint32(r.hdr.Data[at+msgIovLen*w:], 1)
		binary.LittleEndian.PutUint32(iov[w:], netlinkBuffer)
		data := Received(netlinkBuffer, r.hdr, at+msgLen*w)
		r.hdr.Point(at+msgIov*w, In(iov).Point(0, data))
		r.data = append(r.data, data)
	}
	return r, waiting(ctx, Call{
		Nr: unix.SYS_RECVMMSG, Args: []any{n.s.fd, r.hdr, most, unix.MSG_DONTWAIT, nil}, Wait: unix.EPOLLIN,
	})
}

// result waits for the messages.
func (r *received) result(ctx context.Context) (all [][]byte, err error) {
	count, err := r.call.Result(ctx)
	if err != nil {
		return nil, err
	}
	for i, data := range r.data[:min(int(count), len(r.data))] {
		if binary.LittleEndian.Uint32(r.hdr.Data[(i*msgWords+msgFlags)*r.word:])&unix.MSG_TRUNC != 0 {
			return nil, fmt.Errorf("a netlink datagram has more than %d bytes", netlinkBuffer)
		}
		all = append(all, data.Data)
	}
	return all, nil
}

// drop cancels the call. It may have received a message that nobody wants.
func (r *received) drop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = r.call.Result(ctx) // the error of ctx
}

// Close closes the socket.
func (n *netlinkSocket) Close() error {
	if n.answer != nil {
		n.answer.drop()
	}
	return n.s.Close()
}

// Send sends one message.
func (n *netlinkSocket) Send(m netlink.Message) error {
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	return n.send(b)
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
	return n.send(all)
}

// send sends a request and, at the same time, asks for its answer.
func (n *netlinkSocket) send(b []byte) error {
	if n.isMember || n.answer != nil {
		_, err := n.s.Send(n.ctx, b)
		return err
	}
	answer, receive := n.receive(n.ctx)
	calls, err := n.s.c.startAll(n.ctx, Call{Nr: unix.SYS_SENDTO, Args: []any{n.s.fd, In(b), len(b), unix.MSG_NOSIGNAL, nil, 0}}, receive)
	if err != nil {
		return err
	}
	answer.call = calls[1]
	if _, err := calls[0].Result(n.ctx); err != nil {
		answer.drop()
		return err
	}
	n.answer = answer
	return nil
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
	if len(n.read) == 0 {
		var err error
		if n.read, err = n.receiveSome(); err != nil {
			return nil, err
		}
	}
	b := n.read[0]
	n.read = n.read[1:]
	return parseNetlink(b)
}

// receiveSome receives at least one datagram.
func (n *netlinkSocket) receiveSome() ([][]byte, error) {
	ctx := n.ctx
	if !n.isMember {
		var cancel context.CancelFunc
		ctx, cancel = n.s.c.limited(ctx, 0)
		defer cancel()
	}
	for {
		r := n.answer
		n.answer = nil
		if r == nil {
			var receive Call
			r, receive = n.receive(ctx)
			var err error
			if r.call, err = n.s.c.Start(ctx, receive); err != nil {
				return nil, err
			}
		}
		all, err := r.result(ctx)
		if len(all) > 0 || err != nil && !errors.Is(err, unix.EAGAIN) {
			return all, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
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
