// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// Buffer is the memory of a pointer argument.
type Buffer struct {
	// Data is sent with In and InOut. With Out and InOut it receives the result, and
	// its length is the length of the memory. With Received it is the result.
	Data []byte

	flags  uint8
	ptrs   []pointer
	size   int      // of Received: length of the memory
	counts *pointer // of Received: where the call reports the used length
}

// pointer is the address of a buffer inside another.
type pointer struct {
	offset int
	to     *Buffer
}

// In is memory that the call reads.
func In(data []byte) *Buffer { return &Buffer{Data: data, flags: ctlproto.CTL_BUF_IN} }

// Out is memory that the call writes; the call finds it zeroed. On an error of
// the call data is untouched.
func Out(data []byte) *Buffer { return &Buffer{Data: data, flags: ctlproto.CTL_BUF_OUT} }

// InOut is memory that the call reads and writes.
func InOut(data []byte) *Buffer { return &Buffer{Data: data, flags: ctlproto.CTL_BUF_INOUT} }

// Point stores the address of to in the word at the given offset of b, like msg_iov of a
// struct msghdr. The offset must be a multiple of the word size (Conn.WordSize). It
// returns b.
func (b *Buffer) Point(offset int, to *Buffer) *Buffer {
	b.ptrs = append(b.ptrs, pointer{offset, to})
	return b
}

// Received is memory of size bytes for one message of a recvmmsg. The uint32 at the given
// offset of in, an Out or InOut buffer of the same call, reports the used length, like
// msg_len of a struct mmsghdr. Only that part is transferred: Data is then a slice of the
// reply, which belongs to the caller. The buffers must have the order of the messages.
// The call returns fewer messages if the reply may have no room for another.
func Received(size int, in *Buffer, offset int) *Buffer {
	return &Buffer{flags: ctlproto.CTL_BUF_OUT, size: size, counts: &pointer{offset, in}}
}

// length is the length of the memory.
func (b *Buffer) length() int {
	if b.counts != nil {
		return b.size
	}
	return len(b.Data)
}

// take fills b with its part of a reply and returns the rest; false if the reply is too
// short.
func (b *Buffer) take(reply []byte) ([]byte, bool) {
	n := b.length()
	if b.counts != nil {
		n = min(int(binary.LittleEndian.Uint32(b.counts.to.Data[b.counts.offset:])), n)
	}
	if n > len(reply) {
		return nil, false
	}
	if b.counts != nil {
		b.Data = reply[:n:n]
	} else {
		copy(b.Data, reply[:n])
	}
	return reply[n:], true
}

// CString is a zero-terminated string that the call reads.
func CString(s string) *Buffer { return In(append([]byte(s), 0)) }

// Call is a system call to be made in the stack.
type Call struct {
	// Nr is the call's number on this program's architecture: unix.SYS_*. The same
	// holds for flags in Args. Both are translated for the stack host.
	Nr uint32

	// Args are up to six arguments: int, uint32, uint64, uintptr, *Buffer, or
	// nil for 0.
	Args []any

	// Wait, if not zero, lets a call that returns EAGAIN wait for these events
	// (unix.EPOLLIN ...) on the descriptor in its first argument, until Timeout has
	// passed or the context is done. The descriptor must be non-blocking.
	Wait    uint32
	Timeout time.Duration
}

// Syscall makes a call in the stack and returns its result. An error of the call itself
// is a bare syscall.Errno.
//
// If the context ends first, the call is cancelled and the context's error is returned,
// unless the call has already completed.
func (c *Conn) Syscall(ctx context.Context, call Call) (int64, error) {
	p, err := c.Start(ctx, call)
	if err != nil {
		return 0, err
	}
	return p.Result(ctx)
}

// Pending is a call in progress; Result must be called once.
type Pending struct {
	c      *Conn
	id     uint32
	answer <-chan ctlproto.Frame
	outs   []*Buffer
	wait   time.Duration
}

// Start sends a call without waiting for its result. The calls of a connection are made
// in the order in which they were started.
func (c *Conn) Start(ctx context.Context, call Call) (*Pending, error) {
	all, err := c.startAll(ctx, call)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// startAll is like Start for several calls, which it sends together: each write wakes the
// stack host.
func (c *Conn) startAll(ctx context.Context, calls ...Call) ([]*Pending, error) {
	frames, all := make([]ctlproto.Frame, len(calls)), make([]*Pending, len(calls))
	for i, call := range calls {
		m := ctlproto.Syscall{Nr: call.Nr}
		if call.Wait != 0 && call.Timeout > 0 {
			m.WaitEvents, m.TimeoutMS = call.Wait, milliseconds(call.Timeout)
		}
		outs, err := arguments(&m, call.Args)
		if to := c.arch(); err == nil && to != runtime.GOARCH {
			m.Nr, err = translate(m.Nr, &m.Args, runtime.GOARCH, to)
		}
		if err == nil {
			frames[i].Body, err = m.Append(nil)
		}
		if err != nil {
			return nil, fmt.Errorf("system call %d: %w", call.Nr, err)
		}
		frames[i].Type = ctlproto.CTL_SYSCALL
		all[i] = &Pending{c: c, outs: outs, wait: call.Timeout}
	}
	answers, err := c.sendAll(ctx, frames, nil)
	if err != nil {
		return nil, err
	}
	for i, p := range all {
		p.id, p.answer = frames[i].ID, answers[i]
	}
	return all, nil
}

// all makes calls in order, without waiting for one before the next, and returns their
// results.
func (c *Conn) all(ctx context.Context, calls ...Call) (results []int64, errs []error) {
	results, errs = make([]int64, len(calls)), make([]error, len(calls))
	pending, err := c.startAll(ctx, calls...)
	for i := range calls {
		if errs[i] = err; err == nil {
			results[i], errs[i] = pending[i].Result(ctx)
		}
	}
	return results, errs
}

// Result waits for the result of a call and returns the same as Syscall.
func (p *Pending) Result(ctx context.Context) (int64, error) {
	ctx, cancel := p.c.limited(ctx, p.wait)
	defer cancel()
	select {
	case f := <-p.answer:
		return result(f, p.outs)
	case <-p.c.done:
		select {
		case f := <-p.answer:
			return result(f, p.outs)
		default:
			return 0, gone(p.c.Err())
		}
	case <-ctx.Done():
		return p.c.cancel(p.id, p.answer, p.outs, context.Cause(ctx))
	}
}

// cancel cancels a call because of cause.
func (c *Conn) cancel(id uint32, answer <-chan ctlproto.Frame, outs []*Buffer, cause error) (int64, error) {
	// The caller's context is done, so this function uses its own timeout.
	ctx, stop := context.WithTimeout(context.Background(), cancelLimit)
	defer stop()
	cid, _, err := c.send(ctx, ctlproto.CTL_CANCEL, ctlproto.Cancel{ID: id}.Append(nil), nil)
	if err != nil {
		c.forget(id)
		return 0, cause
	}
	defer c.forget(cid)
	select {
	case f := <-answer:
		n, err := result(f, outs)
		if errors.Is(err, syscall.EINTR) {
			return 0, cause
		}
		return n, err
	case <-c.done:
	case <-ctx.Done():
	}
	c.forget(id)
	return 0, cause
}

// arguments fills the arguments and buffers of m. It returns the buffers that the reply
// fills, in the reply's order. The buffers that a buffer points to are in the order of
// the pointers, and come before those that they point to in turn. This order allows many
// pointers, although the index of a buffer that contains a pointer is only one byte.
func arguments(m *ctlproto.Syscall, args []any) (outs []*Buffer, err error) {
	if len(args) > len(m.Args) {
		return nil, fmt.Errorf("%d arguments, at most %d", len(args), len(m.Args))
	}
	l := layout{m: m}
	for i, a := range args {
		switch a := a.(type) {
		case nil:
		case int:
			m.Args[i] = uint64(a)
		case uint32:
			m.Args[i] = uint64(a)
		case uint64:
			m.Args[i] = a
		case uintptr:
			m.Args[i] = uint64(a)
		case *Buffer:
			l.queue = append(l.queue, placed{b: a, place: i})
		default:
			return nil, fmt.Errorf("argument %d is a %T", i, a)
		}
	}
	for len(l.queue) > 0 {
		next := l.queue[0]
		l.queue = l.queue[1:]
		if err := l.add(next); err != nil {
			return nil, err
		}
	}
	return l.outs, nil
}

// placed is a buffer and the place of its address.
type placed struct {
	b      *Buffer
	place  int
	nested uint8 // CTL_BUF_IN_BUF, or 0
	offset int
}

// layout arranges the buffers of a call.
type layout struct {
	m     *ctlproto.Syscall
	queue []placed
	at    []*Buffer // by index in m.Bufs; nil for an entry that is a count
	outs  []*Buffer
}

func (l *layout) add(p placed) error {
	d := ctlproto.Buf{Flags: p.b.flags | p.nested, Len: uint32(p.b.length())}
	if p.b.flags&ctlproto.CTL_BUF_IN != 0 {
		d.Data = p.b.Data
	}
	if p.b.flags&ctlproto.CTL_BUF_OUT != 0 {
		l.outs = append(l.outs, p.b)
	}
	if err := l.append(d, p.b, p.place, p.offset); err != nil {
		return err
	}
	self := len(l.at) - 1
	if c := p.b.counts; c != nil {
		place := slices.Index(l.at, c.to)
		if place < 0 || place == self {
			return errors.New("a buffer is counted by what does not come before it")
		}
		if err := l.append(ctlproto.Buf{Flags: ctlproto.CTL_BUF_USED}, nil, place, c.offset); err != nil {
			return err
		}
	}
	for _, to := range p.b.ptrs {
		l.queue = append(l.queue, placed{to.to, self, ctlproto.CTL_BUF_IN_BUF, to.offset})
	}
	return nil
}

func (l *layout) append(d ctlproto.Buf, b *Buffer, place, offset int) error {
	switch {
	case offset < 0 || offset > 0xffff:
		return fmt.Errorf("address at offset %d of a buffer", offset)
	case place > 0xff:
		return fmt.Errorf("address in buffer %d of the call", place)
	case len(l.m.Bufs) >= ctlproto.CTL_SYSCALL_BUFS:
		return fmt.Errorf("more than %d buffers", ctlproto.CTL_SYSCALL_BUFS)
	}
	d.Place, d.Offset = uint8(place), uint16(offset)
	l.m.Bufs = append(l.m.Bufs, d)
	l.at = append(l.at, b)
	return nil
}

// result decodes the reply of a call and fills the buffers.
func result(f ctlproto.Frame, outs []*Buffer) (int64, error) {
	body, err := reply(f, ctlproto.CTL_SYSCALL)
	if err != nil {
		return 0, fmt.Errorf("making a system call in the stack: %w", err)
	}
	var r ctlproto.SyscallReply
	if err := r.Unmarshal(body); err != nil {
		return 0, err
	}
	if r.Ret < 0 {
		if len(r.Out) != 0 {
			return 0, fmt.Errorf("%w: %d bytes with an error", ctlproto.ErrMalformed, len(r.Out))
		}
		// The stack returns no other values in the range of error numbers.
		return 0, errno(r.Ret)
	}
	rest := r.Out
	for _, b := range outs {
		var ok bool
		if rest, ok = b.take(rest); !ok {
			return 0, fmt.Errorf("%w: %d bytes of buffers, want more", ctlproto.ErrMalformed, len(r.Out))
		}
	}
	if len(rest) != 0 {
		return 0, fmt.Errorf("%w: %d bytes of buffers, %d of them not asked for", ctlproto.ErrMalformed, len(r.Out), len(rest))
	}
	return r.Ret, nil
}
