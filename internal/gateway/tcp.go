// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// copyBuffers are for data on its way between the two sides of a connection.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// relay is a TCP connection of the stack and the host's that carries it on.
type relay struct {
	stack    *gonet.TCPConn
	endpoint tcpip.Endpoint // of stack
	host     *net.TCPConn
	entry
}

// connect takes a connection of the stack's: first the host connects, then the
// stack's SYN is answered, so that the stack sees the outcome of both.
func (g *Gateway) connect(ctx context.Context, req *tcp.ForwarderRequest) {
	id := req.ID()
	if tables()[carried].full() {
		g.limited(carried)
		req.Complete(true)
		return
	}
	conn, err := g.dial(ctx, id)
	if err != nil {
		g.log.Debug("gateway: connecting", "error", err)
		if errors.Is(err, unix.EMFILE) {
			g.limited(carried)
		}
		// No answer at all where the host had none either.
		req.Complete(!isTimeout(err) && !errors.Is(err, context.Canceled))
		return
	}
	var wq waiter.Queue
	ep, terr := req.CreateEndpoint(&wq)
	req.Complete(false)
	if terr != nil {
		g.log.Debug("gateway: accepting", "error", terr)
		reset(conn.(*net.TCPConn)) // the stack has given it up meanwhile
		return
	}
	g.relay(&relay{stack: gonet.NewTCPConn(&wq, ep), endpoint: ep, host: conn.(*net.TCPConn)})
}

// relay carries a connection to its end.
func (g *Gateway) relay(r *relay) {
	if !g.add(r) {
		r.abort()
		return
	}
	sent := make(chan struct{})
	go func() {
		defer g.sending.Done()
		defer close(sent)
		r.send()
	}()
	r.receive()
	<-sent
	g.remove(r)
	r.stack.Close()
	r.host.Close()
}

// dial is the host's connection for one of the stack's.
func (g *Gateway) dial(ctx context.Context, id stack.TransportEndpointID) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	e := &entry{g: g, peer: peer(id.LocalAddress), end: cancel}
	tables()[connecting].add(e)
	defer tables()[connecting].remove(e)
	if g.isDNS(id.LocalAddress, id.LocalPort) {
		return g.dns.dialTCP(ctx)
	}
	// No keep-alive of ours: whether there is one is for the stack to say.
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, "tcp", g.destination(id.LocalAddress, id.LocalPort))
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func (g *Gateway) add(r *relay) bool {
	r.g = g
	if !tables()[carried].tryAdd(&r.entry) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		tables()[carried].remove(&r.entry)
		return false
	}
	g.carried++
	g.relays[r] = struct{}{}
	g.sending.Add(1)
	return true
}

func (g *Gateway) remove(r *relay) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.relays, r)
	tables()[carried].remove(&r.entry)
}

// send carries what the stack sends to the host, to the end of either.
func (r *relay) send() {
	if err := carry(r.host, r.stack); err != nil {
		r.abort()
		return
	}
	_ = r.host.CloseWrite() // fails when the other direction was reset
}

// receive carries what the host receives to the stack.
func (r *relay) receive() {
	if err := carry(r.stack, r.host); err != nil {
		r.abort()
		return
	}
	_ = r.stack.CloseWrite()
}

// carry copies until end-of-file; an error, on either side, is a reset.
func carry(to io.Writer, from io.Reader) error {
	b := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(b)
	for {
		n, err := from.Read(*b)
		if n > 0 {
			if _, werr := to.Write((*b)[:n]); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// abort resets both sides: an end on one that was no orderly one must not look
// orderly on the other.
func (r *relay) abort() {
	r.endpoint.Abort()
	reset(r.host)
}

// reset closes a connection with RST instead of FIN.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails when it is closed already
	conn.Close()
}

// lastCall lets send read what the stack sent before it went away, and no more.
func (r *relay) lastCall() {
	_ = r.stack.CloseRead()
}
