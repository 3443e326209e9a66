// SPDX-License-Identifier: Apache-2.0

package hoststack

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// host is the state shared by all connections.
type host struct {
	calls atomic.Int64
	start uint64
	once  sync.Once
	stop  chan struct{}
}

// peer is one connection.
type peer struct {
	h       *host
	sock    *net.UnixConn
	writing sync.Mutex

	mu      sync.Mutex
	fds     map[int]bool   // opened by its calls
	waiting map[uint32]int // eventfd that cancels the call with this id
	events  uint32         // id of the subscription
	mask    uint32
}

func (h *host) serve(sock *net.UnixConn) {
	p := &peer{h: h, sock: sock, fds: map[int]bool{}, waiting: map[uint32]int{}}
	defer p.close()
	greeted := false
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		f, err := ctlproto.ReadFrame(sock)
		if err != nil {
			p.cancelAll()
			return
		}
		if !greeted && f.Type != ctlproto.CTL_HELLO {
			p.reply(f, unix.EBADMSG, nil)
			return
		}
		greeted = true
		if f.Type == ctlproto.CTL_SYSCALL {
			var m ctlproto.Syscall
			if err := m.Unmarshal(f.Body); err != nil {
				p.reply(f, unix.EBADMSG, nil)
				return
			}
			// Register the call before the next frame is read, because that frame may
			// cancel it.
			cancel := p.await(f.ID, m)
			p.h.calls.Add(1)
			// Calls are made in the order of their frames. Only those that wait
			// are repeated in the background.
			mem, merr := newMemory(&m)
			if merr != nil {
				p.answer(f, cancel, -int64(merr.(unix.Errno)), nil) //nolint:errorlint // newMemory returns bare ones
				continue
			}
			if ret := p.call(m); ret != -int64(unix.EAGAIN) || cancel < 0 {
				p.finish(f, m, mem, cancel, ret)
				continue
			}
			calls.Go(func() { p.finish(f, m, mem, cancel, p.wait(m, cancel)) })
			continue
		}
		body, errno := p.request(f)
		p.reply(f, errno, body)
		if errno == unix.EBADMSG {
			return
		}
		if f.Type == ctlproto.CTL_STOP {
			h.once.Do(func() { close(h.stop) })
			p.cancelAll()
			return
		}
	}
}

// request handles all requests except system calls.
func (p *peer) request(f ctlproto.Frame) ([]byte, unix.Errno) {
	switch f.Type {
	case ctlproto.CTL_HELLO:
		var m ctlproto.HelloRequest
		if m.Unmarshal(f.Body) != nil || m.Magic != ctlproto.CTL_MAGIC || m.Version == 0 {
			return nil, unix.EBADMSG
		}
		return ctlproto.HelloReply{
			Version: 1, State: ctlproto.CTL_STATE_BOOTED, HostPID: uint32(os.Getpid()),
			ABI: ctlproto.CTL_ABI_HOST, StartNS: p.h.start, Stack: "host", Release: release(), Arch: runtime.GOARCH,
		}.Append(nil), 0
	case ctlproto.CTL_CANCEL:
		var m ctlproto.Cancel
		if m.Unmarshal(f.Body) != nil {
			return nil, unix.EBADMSG
		}
		p.cancel(m.ID)
		return nil, 0
	case ctlproto.CTL_STATS:
		return fmt.Appendf(nil, "ctl.calls %d\n", p.h.calls.Load()), 0
	case ctlproto.CTL_OWNERS:
		return nil, 0
	case ctlproto.CTL_LOG:
		return []byte("the host kernel keeps its log\n"), 0
	case ctlproto.CTL_EVENTS:
		var m ctlproto.Events
		if m.Unmarshal(f.Body) != nil {
			return nil, unix.EBADMSG
		}
		p.mu.Lock()
		p.events, p.mask = f.ID, m.Mask
		p.mu.Unlock()
		return nil, 0
	case ctlproto.CTL_STOP:
		var m ctlproto.Stop
		if m.Unmarshal(f.Body) != nil {
			return nil, unix.EBADMSG
		}
		p.event(ctlproto.Event{Kind: ctlproto.CTL_EV_EXIT, TimeNS: monotonic(), Arg: int64(m.Signal)})
		return nil, 0
	}
	return nil, unix.EOPNOTSUPP
}

// event sends an event to a subscriber.
func (p *peer) event(e ctlproto.Event) {
	p.mu.Lock()
	id, mask := p.events, p.mask
	p.mu.Unlock()
	if mask&e.Kind != 0 {
		p.send(ctlproto.Frame{Type: ctlproto.CTL_EVENT, ID: id, Body: e.Append(nil)})
	}
}

func (p *peer) reply(f ctlproto.Frame, errno unix.Errno, body []byte) {
	p.send(ctlproto.Frame{Type: f.Type | ctlproto.CTL_REPLY, ID: f.ID, Status: -int32(errno), Body: body})
}

func (p *peer) send(f ctlproto.Frame) {
	b, err := f.Append(nil)
	if err != nil { // the reply is too long because the request was
		b, _ = ctlproto.Frame{Type: f.Type, ID: f.ID, Status: -int32(unix.EMSGSIZE)}.Append(nil)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if _, err := p.sock.Write(b); err != nil {
		p.sock.Close() // the reader notices
	}
}

// await prepares the cancellation of a call that may block.
func (p *peer) await(id uint32, m ctlproto.Syscall) int {
	if m.TimeoutMS == 0 {
		return -1
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1
	}
	p.mu.Lock()
	p.waiting[id] = fd
	p.mu.Unlock()
	return fd
}

func (p *peer) cancel(id uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fd, ok := p.waiting[id]; ok {
		_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // cannot fail on an eventfd at 0
	}
}

func (p *peer) cancelAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fd := range p.waiting {
		_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// finish answers a call that has ended.
func (p *peer) finish(f ctlproto.Frame, m ctlproto.Syscall, mem *memory, cancel int, ret int64) {
	defer mem.free()
	var out []byte
	if ret >= 0 {
		p.track(m, int(ret))
		out = mem.outcome(&m)
	}
	p.answer(f, cancel, ret, out)
}

func (p *peer) answer(f ctlproto.Frame, cancel int, ret int64, out []byte) {
	if cancel >= 0 {
		p.mu.Lock()
		delete(p.waiting, f.ID)
		p.mu.Unlock()
		unix.Close(cancel)
	}
	p.reply(f, 0, ctlproto.SyscallReply{Ret: ret, Out: out}.Append(nil))
}

// call makes a call and returns its result, or a negative error number.
func (p *peer) call(m ctlproto.Syscall) int64 {
	r, _, errno := unix.Syscall6(uintptr(m.Nr), uintptr(m.Args[0]), uintptr(m.Args[1]),
		uintptr(m.Args[2]), uintptr(m.Args[3]), uintptr(m.Args[4]), uintptr(m.Args[5]))
	if errno != 0 {
		return -int64(errno)
	}
	return int64(r)
}

// wait repeats a call that would block.
func (p *peer) wait(m ctlproto.Syscall, cancel int) int64 {
	deadline := time.Now().Add(time.Duration(m.TimeoutMS) * time.Millisecond)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return -int64(unix.EAGAIN)
		}
		fds := []unix.PollFd{
			{Fd: int32(cancel), Events: unix.POLLIN},
			{Fd: int32(m.Args[0]), Events: int16(m.WaitEvents)}, // EPOLL* equal POLL* in these bits
		}
		_, _ = unix.Poll(fds, int(left/time.Millisecond)+1) // the call is repeated whatever the result
		if fds[0].Revents != 0 {
			return -int64(unix.EINTR)
		}
		if ret := p.call(m); ret != -int64(unix.EAGAIN) {
			return ret
		}
	}
}

// track records descriptors, to close them with the connection.
func (p *peer) track(m ctlproto.Syscall, ret int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Nr {
	case unix.SYS_SOCKET, unix.SYS_OPENAT, unix.SYS_ACCEPT4, unix.SYS_DUP:
		p.fds[ret] = true
	case unix.SYS_CLOSE:
		delete(p.fds, int(m.Args[0]))
	}
}

func (p *peer) close() {
	p.sock.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for fd := range p.fds {
		unix.Close(fd)
	}
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
