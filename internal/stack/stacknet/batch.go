// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// batch is a series of rtnetlink or other netlink requests that are sent together. One
// system call in the stack carries them all. The stack answers only those that fail, and
// the last one.
type batch struct {
	family int // NETLINK_*; zero: NETLINK_ROUTE
	data   []byte
	ends   []int // end offsets of the messages in data
}

const (
	// batchBuffer is the requested buffer size of a netlink socket.
	batchBuffer = 4 << 20

	// batchFew is the number of requests that do not need such a buffer: the smallest
	// default buffer (208 KiB) holds as many answers.
	batchFew = 64

	// batchMost bounds the bytes of one send. It is well below one frame of the
	// control connection.
	batchMost = 512 << 10
)

// add appends a request. Its number is the number of requests before it.
func (b *batch) add(typ netlink.HeaderType, flags netlink.HeaderFlags, head []byte, fill func(*netlink.AttributeEncoder)) error {
	attrs, err := attributes(fill)
	if err != nil {
		return err
	}
	return b.append(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | flags}, Data: append(head, attrs...)})
}

// append appends a message whose length and number are not set yet.
func (b *batch) append(m netlink.Message) error {
	m.Header.Length = uint32(unix.SizeofNlMsghdr + len(m.Data))
	m.Header.Sequence = uint32(len(b.ends) + 1)
	raw, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	b.data = append(b.data, raw...)
	b.ends = append(b.ends, len(b.data))
	return nil
}

// send sends the requests, in order, and returns the errors of those that failed, by
// number. err means that not all were tried, or that more failed than the stack could
// report.
func (b *batch) send(ctx context.Context, c *stackconn.Conn) (errs map[int]error, err error) {
	s, err := c.Socket(ctx, unix.AF_NETLINK, unix.SOCK_RAW, b.family)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if len(b.ends) > batchFew {
		for _, option := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
			if err := s.SetsockoptInt(ctx, unix.SOL_SOCKET, option, batchBuffer); err != nil {
				return nil, err
			}
		}
	}
	// An answer should quote only the header of its request.
	if err := s.SetsockoptInt(ctx, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return nil, err
	}
	if err := s.SetsockoptInt(ctx, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1); err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return nil, err
	}
	errs = map[int]error{}
	for first, start := 0, 0; first < len(b.ends); {
		next := first + 1
		for next < len(b.ends) && b.ends[next]-start <= batchMost {
			next++
		}
		if err := b.part(ctx, s, start, first, next, errs); err != nil {
			return nil, err
		}
		first, start = next, b.ends[next-1]
	}
	return errs, nil
}

// part sends the requests from number first up to next, which begin at start.
func (b *batch) part(ctx context.Context, s *stackconn.Socket, start, first, next int, errs map[int]error) error {
	last := start // start of the last message, the only one that requests an answer
	if next-1 > first {
		last = b.ends[next-2]
	}
	flags := b.data[last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|uint16(netlink.Acknowledge))
	if _, err := s.Send(ctx, b.data[start:b.ends[next-1]]); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := s.RecvFrom(ctx, buf, 0)
		if errors.Is(err, syscall.ENOBUFS) {
			return fmt.Errorf("more errors occurred than the stack could report: %w", err)
		}
		if err != nil {
			return err
		}
		// Each message is a struct nlmsghdr, followed by a struct nlmsgerr.
		for msg := buf[:n]; len(msg) >= unix.SizeofNlMsghdr+4; {
			size := int(binary.NativeEndian.Uint32(msg))
			if size < unix.SizeofNlMsghdr+4 || size > len(msg) || binary.NativeEndian.Uint16(msg[4:]) != unix.NLMSG_ERROR {
				return fmt.Errorf("malformed answer of %d bytes", len(msg))
			}
			number := int(binary.NativeEndian.Uint32(msg[8:])) - 1
			if no := int32(binary.NativeEndian.Uint32(msg[unix.SizeofNlMsghdr:])); no != 0 {
				errs[number] = refusal(syscall.Errno(-no), msg[:size])
			}
			if number == next-1 {
				return nil
			}
			msg = msg[min((size+3)&^3, len(msg)):]
		}
	}
}

// refusal returns the error number, with the stack's message if there is one. A struct
// nlmsgerr quotes the header of the request (NLM_F_CAPPED), followed by attributes
// (NLM_F_ACK_TLVS), include/uapi/linux/netlink.h.
func refusal(no syscall.Errno, answer []byte) error {
	const (
		capped, tlvs = 0x100, 0x200
		behind       = unix.SizeofNlMsghdr + 4 + unix.SizeofNlMsghdr
		attrMessage  = 1 // NLMSGERR_ATTR_MSG
	)
	if flags := binary.NativeEndian.Uint16(answer[6:]); flags&capped == 0 || flags&tlvs == 0 || len(answer) < behind {
		return no
	}
	ad, err := netlink.NewAttributeDecoder(answer[behind:])
	if err != nil {
		return no
	}
	for ad.Next() {
		if ad.Type() == attrMessage {
			return fmt.Errorf("%s: %w", ad.String(), no)
		}
	}
	return no
}
