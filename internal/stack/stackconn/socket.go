// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// waitSlice is the duration of one waiting call if its context has no deadline. The call
// is repeated until the context ends.
const waitSlice = time.Minute

// closeLimit bounds the wait until the stack host accepts the request to close a descriptor.
const closeLimit = 5 * time.Second

// transferMax bounds the bytes of one call and leaves room for the rest of a frame.
const transferMax = ctlproto.CTL_FRAME_MAX - 0x1000

// Socket is a non-blocking socket in the stack. Addresses are raw
// struct sockaddr bytes, since each family has its own.
type Socket struct {
	c  *Conn
	fd int
}

// Socket opens a socket in the stack.
func (c *Conn) Socket(ctx context.Context, domain, typ, proto int) (*Socket, error) {
	fd, err := c.Syscall(ctx, Call{
		Nr:   unix.SYS_SOCKET,
		Args: []any{domain, typ | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC, proto},
	})
	if domain == unix.AF_PACKET && errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("the stack's kernel has no packet sockets (CONFIG_PACKET): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a socket (family %d, type %d, protocol %d) in the stack: %w", domain, typ, proto, err)
	}
	return &Socket{c: c, fd: int(fd)}, nil
}

// FD returns the descriptor's number in the stack.
func (s *Socket) FD() int { return s.fd }

// Close closes the socket. It has its own timeout.
func (s *Socket) Close() error { return s.c.closeFD(s.fd) }

// closeFD closes a descriptor of the stack, even if the caller's context is done. It does
// not wait for the answer, which is known and may take long to arrive: calls are made in
// the order in which they are sent.
func (c *Conn) closeFD(fd int) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	p, err := c.Start(ctx, closeCall(fd))
	if errors.Is(err, ErrClosed) {
		return nil // the stack host closed it
	}
	if err == nil {
		c.forget(p.id)
	}
	return err
}

func closeCall(fd int) Call { return Call{Nr: unix.SYS_CLOSE, Args: []any{fd}} }

// wait makes a call that may wait until ctx ends.
func (c *Conn) wait(ctx context.Context, call Call) (int64, error) {
	for {
		n, err := c.Syscall(ctx, waiting(ctx, call))
		if !errors.Is(err, syscall.EAGAIN) || call.Wait == 0 {
			return n, err
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// waiting returns call with the longest timeout that one call may have.
func waiting(ctx context.Context, call Call) Call {
	call.Timeout = waitSlice
	if d, ok := ctx.Deadline(); ok {
		call.Timeout = min(call.Timeout, max(time.Until(d), time.Millisecond))
	}
	return call
}

// Bind binds the socket to addr.
func (s *Socket) Bind(ctx context.Context, addr []byte) error {
	_, err := s.c.Syscall(ctx, s.bind(addr))
	return err
}

func (s *Socket) bind(addr []byte) Call {
	return Call{Nr: unix.SYS_BIND, Args: []any{s.fd, In(addr), len(addr)}}
}

// Connect connects the socket to addr and waits until it is connected.
func (s *Socket) Connect(ctx context.Context, addr []byte) error {
	_, err := s.c.Syscall(ctx, Call{Nr: unix.SYS_CONNECT, Args: []any{s.fd, In(addr), len(addr)}})
	if !errors.Is(err, syscall.EINPROGRESS) {
		return err
	}
	// The stack host waits for EAGAIN, not for EINPROGRESS. Sending nothing returns
	// EAGAIN until the socket is connected.
	_, err = s.Send(ctx, nil)
	return err
}

// Listen makes the bound socket accept connections.
func (s *Socket) Listen(ctx context.Context, backlog int) error {
	_, err := s.c.Syscall(ctx, Call{Nr: unix.SYS_LISTEN, Args: []any{s.fd, backlog}})
	return err
}

// Accept waits for a connection.
func (s *Socket) Accept(ctx context.Context) (*Socket, error) {
	fd, err := s.c.wait(ctx, Call{
		Nr: unix.SYS_ACCEPT4, Args: []any{s.fd, nil, nil, unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC}, Wait: unix.EPOLLIN,
	})
	if err != nil {
		return nil, err
	}
	return &Socket{c: s.c, fd: int(fd)}, nil
}

// Shutdown ends the sending direction of a connection.
func (s *Socket) Shutdown(ctx context.Context) error {
	_, err := s.c.Syscall(ctx, Call{Nr: unix.SYS_SHUTDOWN, Args: []any{s.fd, unix.SHUT_WR}})
	return err
}

// Sockname returns the address the socket is bound to.
func (s *Socket) Sockname(ctx context.Context) ([]byte, error) {
	return s.name(ctx, unix.SYS_GETSOCKNAME)
}

func (s *Socket) name(ctx context.Context, nr uint32) ([]byte, error) {
	addr := make([]byte, unix.SizeofSockaddrAny)
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(addr)))
	if _, err := s.c.Syscall(ctx, Call{Nr: nr, Args: []any{s.fd, Out(addr), InOut(size)}}); err != nil {
		return nil, err
	}
	return addr[:min(int(binary.LittleEndian.Uint32(size)), len(addr))], nil
}

// Send sends p on a connected socket.
func (s *Socket) Send(ctx context.Context, p []byte) (int, error) { return s.SendTo(ctx, p, 0, nil) }

// SendTo sends p to addr and waits for room.
func (s *Socket) SendTo(ctx context.Context, p []byte, flags int, addr []byte) (int, error) {
	args := []any{s.fd, In(p), len(p), flags | unix.MSG_NOSIGNAL, nil, 0}
	if addr != nil {
		args[4], args[5] = In(addr), len(addr)
	}
	n, err := s.c.wait(ctx, Call{Nr: unix.SYS_SENDTO, Args: args, Wait: unix.EPOLLOUT})
	return int(n), err
}

// RecvFrom waits for data, receives into p, and returns the sender's address. With
// unix.MSG_TRUNC in flags, the returned length is the datagram's, which may exceed that
// of p.
func (s *Socket) RecvFrom(ctx context.Context, p []byte, flags int) (n int, from []byte, err error) {
	p = p[:min(len(p), transferMax)]
	addr := make([]byte, unix.SizeofSockaddrAny)
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(addr)))
	r, err := s.c.wait(ctx, Call{
		Nr:   unix.SYS_RECVFROM,
		Args: []any{s.fd, Out(p), len(p), flags, Out(addr), InOut(size)},
		Wait: unix.EPOLLIN,
	})
	if err != nil {
		return 0, nil, err
	}
	return int(r), addr[:min(int(binary.LittleEndian.Uint32(size)), len(addr))], nil
}

// Setsockopt sets an option.
func (s *Socket) Setsockopt(ctx context.Context, level, name int, value []byte) error {
	_, err := s.c.Syscall(ctx, s.setsockopt(level, name, value))
	return err
}

func (s *Socket) setsockopt(level, name int, value []byte) Call {
	return Call{Nr: unix.SYS_SETSOCKOPT, Args: []any{s.fd, level, name, In(value), len(value)}}
}

// integer returns the value of an option that is an int.
func integer(value int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(value)) }

// AttachFilter attaches a filter: the socket receives only packets that the program
// accepts (struct sock_fprog, include/uapi/linux/filter.h).
func (s *Socket) AttachFilter(ctx context.Context, program []bpf.RawInstruction) error {
	var code []byte
	for _, i := range program {
		code = binary.NativeEndian.AppendUint16(code, i.Op)
		code = append(code, i.Jt, i.Jf)
		code = binary.NativeEndian.AppendUint32(code, i.K)
	}
	word := s.c.WordSize()
	prog := make([]byte, 2*word)
	binary.NativeEndian.PutUint16(prog, uint16(len(program)))
	_, err := s.c.Syscall(ctx, Call{Nr: unix.SYS_SETSOCKOPT, Args: []any{
		s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, In(prog).Point(word, In(code)), len(prog),
	}})
	return err
}

// SetsockoptInt sets an option that is an int.
func (s *Socket) SetsockoptInt(ctx context.Context, level, name, value int) error {
	return s.Setsockopt(ctx, level, name, integer(value))
}

// Getsockopt reads an option into value and returns its length.
func (s *Socket) Getsockopt(ctx context.Context, level, name int, value []byte) (int, error) {
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(value)))
	if _, err := s.c.Syscall(ctx, Call{
		Nr: unix.SYS_GETSOCKOPT, Args: []any{s.fd, level, name, InOut(value), InOut(size)},
	}); err != nil {
		return 0, err
	}
	return min(int(binary.LittleEndian.Uint32(size)), len(value)), nil
}

// Ioctl makes an ioctl with data as its argument, for input and output.
func (s *Socket) Ioctl(ctx context.Context, req uint32, data []byte) error {
	_, err := s.c.Syscall(ctx, Call{Nr: unix.SYS_IOCTL, Args: []any{s.fd, req, InOut(data)}})
	return err
}
