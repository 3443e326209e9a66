// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway && !device

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/link/user/rules"
)

// pipe is a connection of the gateway's kernel that has a unix socket in place of the host's
// socket, because this process decides about its data. The kernel's process ends its direction
// by shutdown(2). This process ends its own one with a message, so that a closed socket always
// means that the kernel's process has closed it. When nothing is left to decide, the kernel's
// process gets the host's socket, as for other connections.
type pipe struct {
	*net.UnixConn // this process's end
	k             *kernel
	id            uint64
	host          *net.TCPConn // nil: this process answers
	extra         entry        // counts the descriptor of the pipe

	moved     atomic.Int64 // bytes in both directions
	checked   atomic.Bool  // nothing is left to check
	replacing atomic.Bool  // the kernel's process gets the host's socket; set with k.mu
	sentAll   bool         // the stack's direction has ended; guarded by k.mu

	once  sync.Once
	ended chan struct{} // closed when the kernel has ended the connection
	reset bool          // how; set before ended is closed
}

// newPipe returns a pipe and the kernel's end.
func (k *kernel) newPipe(id uint64, host *net.TCPConn) (p *pipe, theirs *os.File, err error) {
	ours, theirs, err := socketPair(unix.SOCK_STREAM | unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	p = &pipe{UnixConn: ours, k: k, id: id, host: host, extra: entry{g: k.g}, ended: make(chan struct{})}
	if !tables()[carried].tryAdd(&p.extra) {
		ours.Close()
		theirs.Close()
		return nil, nil, errNotEntered
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.piped[id] = p; k.ended {
		p.end(true)
	}
	return p, theirs, nil
}

// pipeEnded tells the pipe of a connection, if it has one, that the kernel has ended it.
func (k *kernel) pipeEnded(id uint64, reset bool) {
	k.mu.Lock()
	p := k.piped[id]
	k.mu.Unlock()
	if p != nil {
		p.end(reset)
	}
}

// endPipes ends all pipes after the end of the kernel.
func (k *kernel) endPipes(reset bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.piped {
		p.end(reset)
	}
}

func (p *pipe) end(broken bool) {
	p.once.Do(func() {
		p.reset = broken
		if broken && p.host != nil {
			reset(p.host)
		}
		close(p.ended)
	})
}

// close frees the pipe after its end.
func (p *pipe) close() {
	p.k.mu.Lock()
	delete(p.k.piped, p.id)
	p.k.mu.Unlock()
	tables()[carried].remove(&p.extra)
	p.UnixConn.Close()
	if p.host != nil {
		p.host.Close()
	}
}

// tell ends this process's side of the connection.
func (p *pipe) tell(verdict uint32) {
	m := kernelMsg(kernelEnd, p.id)
	binary.NativeEndian.PutUint32(m[4:], verdict)
	_, _ = p.k.asks.Write(m) // fails if the kernel has ended
}

// abort resets both sides.
func (p *pipe) abort() {
	if p.host != nil {
		reset(p.host)
	}
	p.tell(verdictReset)
}

// orderly reports whether the end of the stack's data is an orderly one.
func (p *pipe) orderly() bool {
	closed := true
	if raw, err := p.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(fds, 0)
			closed = err != nil || n > 0 && fds[0].Revents&unix.POLLHUP != 0
		})
	}
	if !closed {
		return true
	}
	<-p.ended // the kernel's process says how
	return !p.reset
}

// watch carries the data of a connection that the rules check.
func (k *kernel) watch(id uint64, to netip.AddrPort, host *net.TCPConn, flow *rules.Flow) {
	p, theirs, err := k.newPipe(id, host)
	if err != nil {
		k.g.log.Debug("gateway: checking data", "error", err)
		reset(host)
		k.release(id)
		k.refuse(id, to, noHost)
		return
	}
	defer p.close()
	if !k.g.startSending() {
		theirs.Close()
		p.abort()
		return
	}
	k.answer(id, verdictAccept, nil, theirs)
	theirs.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer k.g.sending.Done()
		p.send(flow)
	}()
	p.receive()
	<-sent
	if !p.replacing.Load() {
		<-p.ended
	}
}

// worthReplacing is the number of bytes after which the kernel's process gets the host's
// socket. A connection with fewer bytes is not worth the messages. A read counts as at least
// eachRead bytes, because round trips with little data gain most.
const (
	worthReplacing = 256 << 10
	eachRead       = 16 << 10
)

// send passes the stack's data to the host if the rules permit them.
func (p *pipe) send(flow *rules.Flow) {
	err := carry(writerFunc(func(b []byte) (int, error) {
		if err := flow.Sent(b); err != nil {
			return 0, err
		}
		if flow.Checked() {
			p.checked.Store(true)
		}
		p.count(len(b))
		return p.host.Write(b)
	}), p.UnixConn)
	p.k.mu.Lock()
	p.sentAll = true
	p.k.mu.Unlock()
	if p.replacing.Load() {
		defer p.k.replaces.Done()
	}
	switch {
	case err != nil || !p.orderly():
		p.abort()
	case p.replacing.Load():
		p.replace()
	default:
		_ = p.host.CloseWrite() // fails if the other direction was reset
	}
}

// receive passes the host's data to the stack.
func (p *pipe) receive() {
	err := carry(writerFunc(func(b []byte) (int, error) {
		p.count(len(b))
		return p.UnixConn.Write(b)
	}), p.host)
	switch {
	case p.replacing.Load() && errors.Is(err, os.ErrDeadlineExceeded):
		_ = p.CloseWrite() // fails if the kernel has ended
	case err != nil:
		p.abort()
	default:
		p.tell(verdictDrop)
	}
}

// count counts bytes, and begins to replace the pipe by the host's socket. The kernel's process
// then ends its direction, so send reads what is in the pipe, and its end.
func (p *pipe) count(n int) {
	if p.moved.Add(int64(max(n, eachRead))) < worthReplacing || !p.checked.Load() || p.replacing.Load() {
		return
	}
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if !p.k.closing && !p.k.ended && !p.sentAll && !p.replacing.Load() {
		p.k.replaces.Add(1)
		p.replacing.Store(true)
		_, _ = p.k.asks.Write(kernelMsg(kernelReplace, p.id)) // fails if the kernel has ended
	}
}

// replace passes the host's socket on, and then lets receive end.
func (p *pipe) replace() {
	m := kernelMsg(kernelReplace, p.id)
	binary.NativeEndian.PutUint32(m[4:], verdictAccept)
	if err := p.k.pass(m, p.host); err != nil {
		p.k.g.log.Debug("gateway: replacing a socket", "error", err)
		p.abort()
		return
	}
	_ = p.host.SetReadDeadline(time.Unix(1, 0)) // fails if it is closed
}

// writerFunc is a function that writes.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// answerStream serves the queries on a TCP connection.
func (k *kernel) answerStream(ctx context.Context, id uint64, s rules.Socket) {
	p, theirs, err := k.newPipe(id, nil)
	if err != nil {
		k.g.log.Debug("gateway: serving queries", "error", err)
		k.refuse(id, s.To, noHost)
		return
	}
	defer p.close()
	k.answer(id, verdictAccept, nil, theirs)
	theirs.Close()
	k.g.serveStream(ctx, p.UnixConn, p.abort, s)
	p.tell(verdictDrop)
	select {
	case <-p.ended:
	case <-time.After(streamLimit):
		p.abort()
		<-p.ended
	}
}
