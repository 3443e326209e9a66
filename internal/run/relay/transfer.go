// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

var errReset = errors.New("the other side has reset the connection")

// relay connects to the stack at the address that the host's process has connected to,
// and passes on data, ends and resets.
func (r *Relay) relay(ctx context.Context, host *net.TCPConn) {
	stack, err := r.connect(ctx, host.LocalAddr().(*net.TCPAddr).AddrPort())
	if err != nil {
		if ctx.Err() == nil {
			r.log.Debug("relay: connecting", "to", host.LocalAddr(), "error", err)
		}
		reset(host)
		r.sending.Done()
		return
	}
	defer stack.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sent atomic.Bool // all data of the stack, and its end
	// A failure of one direction ends the other one.
	stop := context.AfterFunc(ctx, func() {
		if sent.Load() {
			host.Close() // the host's kernel still delivers what it has
		} else {
			reset(host)
		}
	})
	back := make(chan error, 1)
	go func() {
		err := toHost(ctx, host, stack)
		if err != nil {
			cancel(err)
		}
		sent.Store(err == nil)
		r.sending.Done()
		back <- err
	}()
	err = toStack(ctx, stack, host)
	if err != nil {
		cancel(err)
	}
	if err = errors.Join(err, <-back); err == nil && stop() {
		host.Close()
		return
	}
	// lklhost closes the socket with a RST, also if ctx has ended.
	last, done := context.WithTimeout(context.WithoutCancel(ctx), resetLimit)
	defer done()
	linger := binary.NativeEndian.AppendUint32(nil, 1) // struct linger: on, 0 seconds
	_ = stack.Setsockopt(last, unix.SOL_SOCKET, unix.SO_LINGER, append(linger, 0, 0, 0, 0))
}

// connect connects to an address of the stack.
func (r *Relay) connect(ctx context.Context, to netip.AddrPort) (*stackconn.Socket, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	domain, addr := sockaddr(to)
	s, err := r.conn.Socket(ctx, domain, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	err = s.Connect(ctx, addr)
	if err == nil {
		err = s.SetsockoptInt(ctx, unix.SOL_TCP, unix.TCP_NODELAY, 1)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// sockaddr returns the family of an address and its struct sockaddr.
func sockaddr(to netip.AddrPort) (domain int, b []byte) {
	ip := to.Addr().Unmap()
	domain = unix.AF_INET
	if ip.Is6() {
		domain = unix.AF_INET6
	}
	b = binary.NativeEndian.AppendUint16(nil, uint16(domain))
	b = binary.BigEndian.AppendUint16(b, to.Port())
	if ip.Is4() {
		return domain, append(append(b, ip.AsSlice()...), make([]byte, unix.SizeofSockaddrInet4-8)...)
	}
	b = append(append(b, 0, 0, 0, 0), ip.AsSlice()...) // after the flow label
	return domain, append(b, 0, 0, 0, 0)               // scope
}

// toStack passes data to the stack until the host's process ends its direction.
func toStack(ctx context.Context, stack *stackconn.Socket, host *net.TCPConn) error {
	buf := make([]byte, bufferSize)
	for {
		n, err := host.Read(buf)
		if n == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			return stack.Shutdown(ctx)
		}
		for rest := buf[:n]; len(rest) > 0; {
			step, cancel := context.WithTimeout(ctx, stallCheck)
			n, err := stack.Send(step, rest)
			cancel()
			rest = rest[max(n, 0):]
			if err == nil {
				continue
			}
			if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			if hostReset(host) {
				return errReset
			}
		}
	}
}

// toHost passes data to the host's process until the stack ends its direction.
func toHost(ctx context.Context, host *net.TCPConn, stack *stackconn.Socket) error {
	buf := make([]byte, bufferSize)
	for {
		n, _, err := stack.RecvFrom(ctx, buf, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return host.CloseWrite()
		}
		for rest := buf[:n]; len(rest) > 0; {
			_ = host.SetWriteDeadline(time.Now().Add(stallCheck))
			n, err := host.Write(rest)
			rest = rest[n:]
			if err == nil {
				continue
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			value := make([]byte, 4)
			if _, err := stack.Getsockopt(ctx, unix.SOL_SOCKET, unix.SO_ERROR, value); err != nil {
				return err
			}
			if binary.NativeEndian.Uint32(value) != 0 {
				return errReset
			}
		}
	}
}

// hostReset reports whether the host's process has reset the connection.
func hostReset(host *net.TCPConn) bool {
	raw, err := host.SyscallConn()
	if err != nil {
		return true
	}
	code := 0
	cerr := raw.Control(func(fd uintptr) { code, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	return errors.Join(cerr, err) != nil || syscall.Errno(code) != 0
}
