// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/lklrun/lklrun/internal/link/user/rules"
)

// copyBuffers holds buffers for data between the two sides of a connection.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// relay connects a TCP connection of the stack to its counterpart on the host.
type relay struct {
	stack    *gonet.TCPConn
	endpoint tcpip.Endpoint // endpoint of the stack's side
	events   *waiter.Queue  // of endpoint
	host     *net.TCPConn
	flow     *rules.Flow // nil: there are no rules
	entry
}

// request is a connection that the stack requests.
type request struct {
	*tcp.ForwarderRequest
	syn   []byte // the packet, which ICMP errors quote
	ended func()
}

// Complete ends the request, with RST if the destination refused the connection.
func (r *request) Complete(refused bool) {
	r.ForwarderRequest.Complete(refused)
	r.ended()
}

// begin starts to connect if pkt is a SYN. It ignores a retransmission of a SYN in progress.
// Each SYN has a forwarder of its own, because a forwarder does not show the packet to its
// handler.
func (g *Gateway) begin(ctx context.Context, id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	if !begins(pkt) {
		return false
	}
	g.mu.Lock()
	_, again := g.dialing[id]
	// Above this limit, SYNs are dropped and later retransmitted. Evicted connections
	// still count until the host has given them up.
	drop := again || len(g.dialing) >= 2*tables()[connecting].most
	if !drop {
		g.dialing[id] = struct{}{}
	}
	g.mu.Unlock()
	if drop {
		return true
	}
	ended := func() {
		g.mu.Lock()
		delete(g.dialing, id)
		g.mu.Unlock()
	}
	syn := pkt.ToView().AsSlice()
	f := tcp.NewForwarder(g.stack, 0, 1, func(r *tcp.ForwarderRequest) { g.connect(ctx, &request{r, syn, ended}) })
	if !f.HandlePacket(id, pkt) {
		ended()
		return false
	}
	return true
}

// connect accepts a connection of the stack. The host connects first, and only
// then the gateway answers the stack's SYN. Thus the stack sees the result of
// the host's attempt.
func (g *Gateway) connect(ctx context.Context, req *request) {
	id := req.ID()
	if (g.rules != nil || g.proxy != nil) && g.isDNS(id.LocalAddress, id.LocalPort) {
		g.answerStream(ctx, req)
		return
	}
	if tables()[carried].full() {
		g.limited(carried)
		g.link.sendError(req.syn, noHost, netip.Addr{})
		req.Complete(false)
		return
	}
	conn, flow, err := g.dial(ctx, id)
	if err != nil {
		g.log.Debug("gateway: connecting", "error", err)
		if errors.Is(err, unix.EMFILE) {
			g.limited(carried)
		}
		refused := errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET)
		// If the host got no answer, the stack gets none either.
		if why := g.answerFor(netip.AddrPortFrom(peer(id.LocalAddress), id.LocalPort), err); why != nil && !refused {
			g.link.sendError(req.syn, why, netip.Addr{})
		}
		req.Complete(refused)
		return
	}
	var wq waiter.Queue
	ep, terr := req.CreateEndpoint(&wq)
	req.Complete(false)
	if terr != nil {
		g.log.Debug("gateway: accepting", "error", terr)
		reset(conn.(*net.TCPConn)) // the stack has given up in the meantime
		return
	}
	g.relay(&relay{stack: gonet.NewTCPConn(&wq, ep), endpoint: ep, events: &wq, host: conn.(*net.TCPConn), flow: flow})
}

// relay copies the data of a connection in both directions until both have
// ended.
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

// dial opens the host's connection for one of the stack's.
func (g *Gateway) dial(ctx context.Context, id stack.TransportEndpointID) (net.Conn, *rules.Flow, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	e := &entry{g: g, peer: peer(id.LocalAddress), end: cancel}
	tables()[connecting].add(e)
	defer tables()[connecting].remove(e)
	if g.isDNS(id.LocalAddress, id.LocalPort) {
		conn, err := g.dns.dialTCP(ctx)
		return conn, nil, err
	}
	return g.dialHost(ctx, "tcp", id)
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
	if !g.startSending() {
		tables()[carried].remove(&r.entry)
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.carried++
	g.relays[r] = struct{}{}
	if g.closing {
		r.lastCall()
	}
	return true
}

// startSending reports whether the gateway has not ended. Close then waits for g.sending.Done.
func (g *Gateway) startSending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return false
	}
	g.sending.Add(1)
	return true
}

func (g *Gateway) remove(r *relay) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.relays, r)
	tables()[carried].remove(&r.entry)
}

// send copies the stack's data to the host until either side ends.
func (r *relay) send() {
	to := io.Writer(r.host)
	if r.flow.Watched() {
		to = &watched{r.host, r.flow}
	}
	if err := carry(to, r.stack); err != nil {
		r.abort()
		return
	}
	_ = r.host.CloseWrite() // fails if the other direction was reset
}

// watched is the host's side of a flow whose data the rules check.
type watched struct {
	*net.TCPConn
	flow *rules.Flow
}

// Write passes data on unless the rules refuse them.
func (w *watched) Write(b []byte) (int, error) {
	if err := w.flow.Sent(b); err != nil {
		return 0, err
	}
	return w.TCPConn.Write(b)
}

// receive copies the host's data to the stack.
func (r *relay) receive() {
	if err := r.feed(); err != nil {
		r.abort()
		return
	}
	_ = r.stack.CloseWrite()
}

// feed is like carry, from the host to the stack. The router reads from the host's socket
// into its own memory, which saves a copy.
func (r *relay) feed() error {
	raw, err := r.host.SyscallConn()
	if err != nil {
		return err
	}
	entry, writable := waiter.NewChannelEntry(waiter.WritableEvents)
	r.events.EventRegister(&entry)
	defer r.events.EventUnregister(&entry)
	for {
		var step feedStep
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			step, failed = r.feedOnce(int(fd))
			return step != feedEmpty
		})
		if err := cmp.Or(err, failed); err != nil {
			return err
		}
		switch step {
		case feedEnd:
			return nil
		case feedFull:
			<-writable
		case feedUrgent:
			// The length of the data behind the urgent byte is unknown. Read drops the
			// urgent byte.
			b := make([]byte, 4096)
			n, err := r.host.Read(b)
			if err == nil {
				_, err = r.stack.Write(b[:n])
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
	}
}

// feedStep is the result of feedOnce.
type feedStep int

const (
	feedMore   feedStep = iota // there may be more
	feedEmpty                  // the host's socket is empty
	feedEnd                    // end of file
	feedFull                   // the router's buffer is full
	feedUrgent                 // there are bytes that FIONREAD does not count
)

// feedOnce passes available bytes of the host's socket to the router.
func (r *relay) feedOnce(fd int) (feedStep, error) {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD
	if err != nil {
		return feedMore, os.NewSyscallError("ioctl", err)
	}
	if n == 0 {
		n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return feedEmpty, nil
		case errors.Is(err, unix.EINTR):
			return feedMore, nil
		case err != nil:
			return feedMore, os.NewSyscallError("recvfrom", err)
		case n == 0:
			return feedEnd, nil
		}
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && n == 0 {
			return feedUrgent, nil
		}
		return feedMore, nil // data has arrived in the meantime
	}
	_, terr := r.endpoint.Write(&available{fd, n}, tcpip.WriteOptions{})
	switch terr.(type) {
	case nil:
		return feedMore, nil
	case *tcpip.ErrWouldBlock:
		return feedFull, nil
	}
	return feedMore, errors.New(terr.String())
}

// available is the content of a socket that has at least n bytes. It implements
// tcpip.Payloader.
type available struct{ fd, n int }

func (a *available) Len() int { return a.n }

func (a *available) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(a.fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, io.ErrUnexpectedEOF // io.EOF would make the router wait for the rest
		}
		return n, nil
	}
}

// carry copies until end of file. After an error on either side, it resets the
// connection.
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

// abort resets both sides, so that a broken connection on one side does not
// look like an orderly end on the other.
func (r *relay) abort() {
	r.endpoint.Abort()
	reset(r.host)
}

// reset closes a connection with RST instead of FIN.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails if it is closed already
	conn.Close()
}

// lastCall lets send read only the data that the stack sent before it ended.
func (r *relay) lastCall() {
	_ = r.stack.CloseRead()
}
