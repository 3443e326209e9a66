// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/tun"
)

// pipeBatch is the number of packets that WireGuard handles together: enough for
// the segments of the largest message. A buffer of 64 KiB belongs to each.
const pipeBatch = conn.IdealBatchSize

// pipe is the tun device of WireGuard on the link to a stack.
type pipe struct {
	conn   *net.UnixConn
	raw    syscall.RawConn
	mtu    int
	events chan tun.Event
	closed sync.Once

	writing  sync.Mutex
	buffer   [headerSize + 1<<16]byte
	message  []byte         // in buffer, which Read has no room for yet; nil: none
	groups   []int          // scratch memory of Write
	tcp, udp unsafe.Pointer // of WireGuard, which Write uses

	used    func()   // called for packets of the stack; may be nil
	monitor *monitor // nil: nobody wants to know whether the gateway answers
	echo    *echo    // nil: the gateway's address in the tunnel is unknown
	inject  *os.File // a copy of the stack's end, to send our own packets
}

// Read waits for packets of the stack and takes those that are there, as far as
// there is room for all segments of a message.
func (p *pipe) Read(bufs [][]byte, sizes []int, offset int) (n int, err error) {
	rerr := p.raw.Read(func(fd uintptr) bool {
		n, err = 0, nil
		for {
			if p.message == nil {
				size, rerr := unix.Read(int(fd), p.buffer[:])
				if errors.Is(rerr, unix.EINTR) {
					continue
				}
				if errors.Is(rerr, unix.EAGAIN) {
					return n > 0
				}
				if rerr != nil || size == 0 {
					err = os.ErrClosed
					return true
				}
				p.message = p.buffer[:size]
			}
			many := segments(p.message)
			if many > len(bufs)-n && n > 0 {
				return true
			}
			if many > 0 { // otherwise, the message is invalid
				got, rerr := handleVirtioRead(p.message, bufs[n:], sizes[n:], offset)
				if rerr == nil || errors.Is(rerr, tun.ErrTooManySegments) { // TCP sends the others again
					n += got
				}
			}
			p.message = nil
		}
	})
	if rerr != nil {
		return 0, os.ErrClosed
	}
	if p.used != nil && (n > 1 || n == 1 && !p.isEcho(bufs[0][offset:offset+sizes[0]])) {
		p.used()
	}
	return n, err
}

// Write passes packets of the tunnel to the stack. It joins segments of a TCP
// connection to one message.
func (p *pipe) Write(bufs [][]byte, offset int) (int, error) {
	p.writing.Lock() // each peer has a writer
	defer p.writing.Unlock()
	packets := bufs[:0:0]
	for _, b := range bufs {
		ours := p.isEcho(b[offset:])
		if p.monitor != nil {
			p.monitor.recordReceived(!ours)
		}
		if !ours {
			packets = append(packets, b)
		}
	}
	p.groups = p.groups[:0]
	defer resetTCPTable(p.tcp)
	if err := handleGRO(packets, offset, p.tcp, p.udp, false, &p.groups); err != nil {
		return 0, err
	}
	for _, k := range p.groups {
		if _, err := p.conn.Write(packets[k][offset-headerSize:]); err != nil {
			return 0, err
		}
	}
	return len(bufs), nil
}

func (p *pipe) isEcho(packet []byte) bool { return p.echo != nil && p.echo.is(packet) }

// sendEcho asks the gateway for an answer. If the link is full, the stack is
// sending anyway.
func (p *pipe) sendEcho() {
	_, _ = p.inject.Write(append(make([]byte, headerSize), p.echo.request...))
}

// File and the following methods implement WireGuard's tun device.
func (p *pipe) File() *os.File           { return nil }
func (p *pipe) MTU() (int, error)        { return p.mtu, nil }
func (p *pipe) Name() (string, error)    { return "lklrun", nil }
func (p *pipe) Events() <-chan tun.Event { return p.events }
func (p *pipe) BatchSize() int           { return pipeBatch }

func (p *pipe) Close() error {
	p.closed.Do(func() {
		p.conn.Close()
		if p.inject != nil {
			p.inject.Close()
		}
		close(p.events)
	})
	return nil
}

// dup returns a copy of a descriptor, which must be non-blocking.
func dup(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var derr error
	if err := raw.Control(func(n uintptr) { fd, derr = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, os.NewSyscallError("fcntl(F_DUPFD_CLOEXEC)", derr)
	}
	return os.NewFile(uintptr(fd), "tunnel link"), nil
}
