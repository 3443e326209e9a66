// SPDX-License-Identifier: Apache-2.0

// Package relay passes connections from the loopback interface of this process's network
// namespace to the stack. Processes of the host in the namespace of a pod need it:
// containerd serves `kubectl port-forward` there, and podman forwards published ports.
//
// The relay listens on the host where the stack's programs listen in the stack, so the
// host's kernel refuses all other connections. lklhost reports when this changes. The
// relay connects only from the host to the stack. A program in the stack has no way to
// reach the relay's sockets on the host, which belong to another kernel.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Flag is the hidden flag of lklrun for a run with a relay.
const Flag = "relay-loopback"

const (
	maxListeners = 512

	// lklhost keeps a reply of at most bufferSize for each connection, and disconnects a
	// client for which it keeps more than 8 MiB.
	maxConns   = 100
	bufferSize = 64 << 10

	// interval is the minimum time between two looks at the stack's listeners.
	interval = 50 * time.Millisecond

	// retry is the time after which a failed look is repeated.
	retry = time.Second

	listLimit    = 10 * time.Second
	connectLimit = 10 * time.Second
	resetLimit   = time.Second

	// stallCheck is the time after which one side is checked for a reset while the other
	// side does not accept data.
	stallCheck = 5 * time.Second

	// drainLimit bounds the time in which data of programs that have ended reach the host's
	// processes.
	drainLimit = 2 * time.Second
)

// A Relay is a running relay.
type Relay struct {
	conn  *stackconn.Conn
	log   *slog.Logger
	slots chan struct{} // one element for each connection

	quit      context.CancelFunc // ends listening
	listening sync.WaitGroup
	listeners map[netip.AddrPort]net.Listener // only follow uses it

	cancel  context.CancelFunc // resets the connections
	conns   sync.WaitGroup
	sending sync.WaitGroup // connections that may still have data for the host
}

// Start starts a relay to the stack with the control socket at path. It lasts until Stop,
// or until the connection to the stack ends.
func Start(ctx context.Context, path string, log *slog.Logger) (*Relay, error) {
	conn, err := stackconn.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	r := &Relay{conn: conn, log: log, slots: make(chan struct{}, maxConns), listeners: map[netip.AddrPort]net.Listener{}}
	conns, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	ctx, r.quit = context.WithCancel(conns)
	// If events are lost, a warning says so.
	events, err := conn.Events(ctx, ctlproto.CTL_EV_LISTEN|ctlproto.CTL_EV_WARN)
	if err != nil {
		r.cancel()
		conn.Close()
		return nil, err
	}
	r.listening.Go(func() { r.follow(ctx, conns, events) })
	return r, nil
}

// Stop ends the relay. Data that the stack's programs have sent before their end still
// reach the host, within drainLimit. Then Stop resets the remaining connections.
func (r *Relay) Stop() {
	r.quit()
	r.listening.Wait()
	sent := make(chan struct{})
	go func() {
		r.sending.Wait()
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(drainLimit):
	}
	r.cancel()
	r.conns.Wait()
	r.conn.Close()
}

// follow listens on the host where the stack listens, until ctx or the connection to the
// stack ends. conns is the context of the connections.
func (r *Relay) follow(ctx, conns context.Context, events <-chan ctlproto.Event) {
	defer func() {
		for _, l := range r.listeners {
			l.Close()
		}
		if ctx.Err() == nil { // lklhost has ended
			r.cancel()
		}
	}()
	for {
		var again <-chan time.Time
		if err := r.update(ctx, conns); err != nil {
			r.log.Debug("relay: looking for the stack's listeners", "error", err)
			if !errors.Is(err, sockdiag.ErrUnsupported) {
				again = time.After(retry)
			}
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
		select {
		case _, ok := <-events:
			if !ok || !drain(events) {
				return
			}
		case <-again:
		}
	}
}

// drain takes the events that have arrived. It returns false after the last event.
func drain(events <-chan ctlproto.Event) bool {
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return false
			}
		default:
			return true
		}
	}
}

// update closes and opens listeners.
func (r *Relay) update(ctx, conns context.Context) error {
	list, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	sockets, err := sockdiag.Listeners(list, r.conn)
	if err != nil {
		return err
	}
	wanted := addresses(sockets)
	for at, l := range r.listeners {
		if !wanted[at] {
			l.Close()
			delete(r.listeners, at)
		}
	}
	for at := range wanted {
		if r.listeners[at] != nil || len(r.listeners) >= maxListeners {
			continue
		}
		l, err := listen(ctx, at)
		if err != nil {
			r.log.Debug("relay: listening", "address", at, "error", err)
			continue
		}
		r.listeners[at] = l
		r.listening.Go(func() { r.accept(ctx, conns, l) })
	}
	return nil
}

// addresses returns the addresses at which the sockets accept connections over lo.
func addresses(sockets []sockdiag.Socket) map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for _, s := range sockets {
		addr := s.Local.Addr()
		if addr.IsLinkLocalUnicast() {
			continue // needs an interface
		}
		all[netip.AddrPortFrom(addr.Unmap(), s.Local.Port())] = true
		if addr == netip.IPv6Unspecified() && !s.V6Only {
			all[netip.AddrPortFrom(netip.IPv4Unspecified(), s.Local.Port())] = true
		}
	}
	return all
}

// listen listens for connections that arrive on lo.
func listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6" // Go sets IPV6_V6ONLY
	}
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		var errs []error
		err := raw.Control(func(fd uintptr) {
			errs = append(errs, unix.BindToDevice(int(fd), "lo"),
				// The stack may listen at the unspecified address, too.
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		})
		return errors.Join(append(errs, err)...)
	}}
	config.SetMultipathTCP(false)
	return config.Listen(ctx, network, at.String())
}

// accept accepts connections until the listener is closed.
func (r *Relay) accept(ctx, conns context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as a lack of descriptors
			select {
			case <-time.After(interval):
				continue
			case <-ctx.Done():
				return
			}
		}
		host := c.(*net.TCPConn)
		select {
		case r.slots <- struct{}{}:
			r.sending.Add(1)
			r.conns.Go(func() {
				r.relay(conns, host)
				<-r.slots
			})
		default:
			r.log.Debug("relay: too many connections", "limit", maxConns)
			reset(host)
		}
	}
}

// reset closes a connection with a RST.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}
