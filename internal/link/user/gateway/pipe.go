// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway && !device

package gateway

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/link/user/rules"
)

// pipe is a connection of the gateway's kernel that has a unix socket in place of the host's
// socket, because this process decides about its data. The kernel's process ends its direction
// by shutdown(2). This process ends its own one with a message, so that a closed socket always
// means that the kernel's process has closed it.
type pipe struct {
	*net.UnixConn // this process's end
	k             *kernel
	id            uint64
	host          *net.TCPConn // nil: this process answers
	extra         entry        // counts the descriptor of the pipe

	once  sync.Once
	ended chan struct{} // closed when the kernel has ended the connection
	reset bool          // how; set before ended is closed
}

// newPipe returns a pipe and the kernel's end.
func (k *kernel) newPipe(id uint64, host *net.TCPConn) (p *pipe, theirs *os.File, err error) {
	ours, theirs, err := socketPair(unix.SOCK_STREAM)
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
	<-p.ended
}

// send passes the stack's data to the host if the rules permit them.
func (p *pipe) send(flow *rules.Flow) {
	if carry(&watched{p.host, flow}, p.UnixConn) != nil || !p.orderly() {
		p.abort()
		return
	}
	_ = p.host.CloseWrite() // fails if the other direction was reset
}

// receive passes the host's data to the stack.
func (p *pipe) receive() {
	if carry(p.UnixConn, p.host) != nil {
		p.abort()
		return
	}
	p.tell(verdictDrop)
}

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
