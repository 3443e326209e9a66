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

const (
	maxListeners = 1024

	// lklhost keeps a reply of at most bufferSize for each connection, and disconnects a
	// client for which it keeps more than 8 MiB.
	maxConns   = 100
	bufferSize = 64 << 10

	// interval is the minimum time between two looks at the stack's listeners.
	interval = 50 * time.Millisecond

	listLimit    = 10 * time.Second
	connectLimit = 10 * time.Second

	// stallCheck is the time after which one side is checked for a reset while the other
	// side does not accept data.
	stallCheck = 5 * time.Second
)

// A Relay is a running relay.
type Relay struct {
	conn   *stackconn.Conn
	log    *slog.Logger
	slots  chan struct{} // one element for each connection
	cancel context.CancelFunc
	done   sync.WaitGroup

	// Only follow uses it.
	listeners map[netip.AddrPort]net.Listener
}

// Start starts a relay to the stack with the control socket at path. It lasts until Stop,
// or until the connection to the stack ends.
func Start(ctx context.Context, path string, log *slog.Logger) (*Relay, error) {
	conn, err := stackconn.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	r := &Relay{conn: conn, log: log, slots: make(chan struct{}, maxConns), listeners: map[netip.AddrPort]net.Listener{}}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	// If events are lost, a warning says so.
	events, err := conn.Events(ctx, ctlproto.CTL_EV_LISTEN|ctlproto.CTL_EV_WARN)
	if err != nil {
		r.cancel()
		conn.Close()
		return nil, err
	}
	r.done.Go(func() { r.follow(ctx, events) })
	return r, nil
}

// Stop resets all connections and waits for the end of the relay.
func (r *Relay) Stop() {
	r.cancel()
	r.done.Wait()
	r.conn.Close()
}

// follow listens on the host where the stack listens, until the connection to the stack
// ends.
func (r *Relay) follow(ctx context.Context, events <-chan ctlproto.Event) {
	// The connections also end if lklhost is killed.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		for _, l := range r.listeners {
			l.Close()
		}
	}()
	for {
		if err := r.update(ctx); err != nil && ctx.Err() == nil {
			r.log.Debug("relay: looking for the stack's listeners", "error", err)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
		if _, ok := <-events; !ok {
			return
		}
	drain:
		for {
			select {
			case _, ok := <-events:
				if !ok {
					return
				}
			default:
				break drain
			}
		}
	}
}

// update closes and opens listeners.
func (r *Relay) update(ctx context.Context) error {
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
		r.done.Go(func() { r.accept(ctx, l) })
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
func (r *Relay) accept(ctx context.Context, l net.Listener) {
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
			r.done.Go(func() {
				r.relay(ctx, host)
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
