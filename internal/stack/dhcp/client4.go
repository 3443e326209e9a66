// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Timers of the client. RFC 2131, 4.1, defines the first two. RFC 5227 requires
// probing an address for four to nine seconds, which is too long when a program
// starts.
const (
	firstRetry    = 4 * time.Second
	mostRetry     = 64 * time.Second
	retrySpread   = time.Second
	requestTries  = 3
	rebootTries   = 2
	probes        = 3
	probeInterval = 200 * time.Millisecond
	firstPause    = time.Second // after a conflict, a refusal or a failure; doubled each time
	mostPause     = time.Minute
	junkMost      = 256 // unrelated datagrams to skip while waiting for a matching one
)

// client is the common part of the clients of both protocols.
type client struct {
	link   Link
	conn   *stackconn.Conn
	log    *slog.Logger
	host   hooks
	nudges nudges
	pause  time.Duration // before the next attempt
}

// hooks are the callbacks of a client.
type hooks struct {
	report func(state string, l *Lease) // receives a state and its lease
	tell   func(format string, args ...any)
}

// states is the state machine of a protocol's client.
type states interface {
	// restart sets the initial state for an interface with or without
	// carrier.
	restart(carrier bool)
	// report passes the state to the hooks, if it is of interest.
	report()
	// step performs the present state's work until it is complete or ctx is
	// done.
	step(ctx context.Context)
	// handleNudge handles nudges between two steps.
	handleNudge(ctx context.Context, bits int, carrier bool)
}

// drive runs the state machine of s until ctx is done.
func (c *client) drive(ctx context.Context, s states) {
	_, carrier := c.nudges.take()
	s.restart(carrier)
	for ctx.Err() == nil {
		s.report()
		phase, cancel := c.nudges.arm(ctx)
		s.step(phase)
		cancel()
		if bits, carrier := c.nudges.take(); bits != 0 {
			s.handleNudge(ctx, bits, carrier)
		}
	}
}

// hear passes datagrams to take until take accepts one or ctx ends. After a
// flood of unrelated datagrams, it ignores all further ones until ctx ends.
func hear[From any](ctx context.Context, receive func(context.Context) ([]byte, From, error), take func([]byte, From) bool) bool {
	for range junkMost {
		b, from, err := receive(ctx)
		if errors.Is(err, errNotOurs) {
			continue
		}
		if err != nil {
			break
		}
		if take(b, from) {
			return true
		}
	}
	<-ctx.Done()
	return false
}

// client4 is the DHCPv4 client of one interface.
type client4 struct {
	client
	hostname string

	state string
	lease *Lease     // the lease applied to the stack
	last  netip.Addr // the address to request again
}

// run serves the interface until ctx is done. The applied lease stays.
func (c *client4) run(ctx context.Context) { c.drive(ctx, c) }

func (c *client4) report() { c.host.report(c.state, c.lease) }

// restart sets the initial state for an interface with or without carrier.
func (c *client4) restart(carrier bool) {
	switch {
	case !carrier:
		c.state = StateDown
	case c.lease != nil:
		c.state = StateRebooting
	default:
		c.state = StateSelecting
	}
}

// handleNudge handles nudges between two steps.
func (c *client4) handleNudge(ctx context.Context, bits int, carrier bool) {
	if bits&nudgeCarrier != 0 && c.state != StateReleased {
		c.pause = 0
		c.restart(carrier)
	}
	switch {
	case bits&nudgeRelease != 0:
		c.release(ctx)
		c.drop(ctx)
		c.state = StateReleased
	case bits&nudgeRenew != 0 && c.state == StateBound:
		c.state = StateRenewing
	case bits&nudgeRenew != 0 && c.lease == nil:
		c.pause = 0
		c.restart(carrier)
	}
}

// step performs the present state's work until it is complete or ctx is done.
func (c *client4) step(ctx context.Context) {
	switch c.state {
	case StateDown:
		if sleep(ctx, c.untilExpiry()) {
			c.expire(ctx)
			c.state = StateDown
		}
	case StateReleased:
		sleep(ctx, -1)
	case StateSelecting, StateWaiting:
		c.acquire(ctx)
	case StateRebooting:
		c.reboot(ctx)
	case StateBound:
		if sleep(ctx, c.until(c.lease.t1)) {
			c.state = StateRenewing
		}
	case StateRenewing:
		c.extend(ctx, c.lease.Server, c.lease.t2, StateRebinding)
	case StateRebinding:
		c.extend(ctx, broadcastAll, c.lease.valid, "")
	}
}

var broadcastAll = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// until returns the time left until the lease is d old; negative: forever.
func (c *client4) until(d time.Duration) time.Duration { return until(c.lease, d) }

func (c *client4) untilExpiry() time.Duration {
	if c.lease == nil {
		return -1
	}
	return c.until(c.lease.valid)
}

// sleep waits for d, or forever if d is negative. It returns false if ctx ended
// first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d < 0 {
		<-ctx.Done()
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// backoff waits before the next attempt. Each wait is longer than the previous
// one.
func (c *client) backoff(ctx context.Context) {
	if c.pause > 0 && sleep(ctx, jitter(c.pause, c.pause/4)) {
		c.pause = min(2*c.pause, mostPause)
	}
	if c.pause == 0 {
		c.pause = firstPause
	}
}

// jitter returns d, randomised by at most spread in both directions.
func jitter(d, spread time.Duration) time.Duration {
	if spread <= 0 {
		return d
	}
	return d - spread + rand.N(2*spread)
}

// acquire gets a new address and applies it.
func (c *client4) acquire(ctx context.Context) {
	c.state = StateSelecting
	w, err := openPacket(ctx, c.conn, c.link.IfIndex)
	if err != nil {
		c.failed(ctx, "opening a packet socket", err)
		return
	}
	defer w.close()
	offer := c.discover(ctx, w)
	if offer == nil {
		return // ctx has ended: discover tries until then
	}
	c.state = StateRequesting
	c.host.report(c.state, c.lease)
	lease, nak := c.request(ctx, w, c.selecting(offer), requestTries, func(l *Lease) bool { return l.Server == offer.Server })
	if lease == nil {
		if c.state = StateSelecting; nak {
			c.log.Debug("dhcp: the server has withdrawn its offer", "link", c.link.Name)
			c.backoff(ctx)
		}
		return
	}
	c.settle(ctx, w, lease)
}

// reboot asks whether the lease is still valid, because the network may be
// another one (RFC 2131, INIT-REBOOT).
func (c *client4) reboot(ctx context.Context) {
	w, err := openPacket(ctx, c.conn, c.link.IfIndex)
	if err != nil {
		c.failed(ctx, "opening a packet socket", err)
		return
	}
	defer w.close()
	old := c.lease
	lease, nak := c.request(ctx, w, c.rebooting(), rebootTries, func(l *Lease) bool { return l.Addr.Addr() == old.Addr.Addr() })
	switch {
	case ctx.Err() != nil:
	case lease != nil:
		c.settle(ctx, w, lease)
	case nak:
		c.lose(ctx, "the DHCP server does not know it")
	case c.until(old.valid) == 0:
		c.expire(ctx)
	default:
		// No server answers, so the lease stays valid until it expires.
		c.set(ctx, old)
	}
}

// extend tries to renew or rebind the lease until the lease is end old.
func (c *client4) extend(ctx context.Context, server netip.Addr, end time.Duration, then string) {
	w, err := openUDP(ctx, c.conn, &c.link, c.lease.Addr.Addr(), server)
	if errors.Is(err, syscall.EADDRNOTAVAIL) { // the address was removed from the stack
		c.state = StateRebooting
		return
	}
	if err != nil {
		c.log.Debug("dhcp: opening a socket for the renewal", "link", c.link.Name, "error", err)
		if sleep(ctx, min(firstRetry, c.until(end))) && c.until(end) == 0 {
			c.late(ctx, then)
		}
		return
	}
	defer w.close()
	old := c.lease
	for ctx.Err() == nil {
		left := c.until(end)
		switch {
		case left == 0:
			c.late(ctx, then)
			return
		case left < 0: // an explicit request; there is no deadline
			left = 2 * time.Minute
		}
		// RFC 2131, 4.4.5: wait half of the remaining time, but at
		// least a minute. With that minimum, a lease of a few minutes
		// would be requested only once, so short leases have a smaller
		// one.
		wait := min(left, max(left/2, min(time.Minute, old.valid/20)))
		try, cancel := context.WithTimeout(ctx, jitter(wait, wait/10))
		lease, nak := c.ask(try, w, c.extending(), func(l *Lease) bool {
			return l.Addr.Addr() == old.Addr.Addr() && (server == broadcastAll || l.Server == server)
		})
		cancel()
		switch {
		case lease != nil:
			c.set(ctx, lease)
			return
		case nak:
			c.lose(ctx, "the DHCP server has withdrawn it")
			return
		}
	}
}

// late handles a lease that was not extended in time.
func (c *client4) late(ctx context.Context, then string) {
	if then == "" {
		c.expire(ctx)
		return
	}
	c.state = then
}

// settle applies a new lease unless another host has its address.
func (c *client4) settle(ctx context.Context, w *packetWire, lease *Lease) {
	taken, err := c.taken(ctx, lease.Addr.Addr())
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.failed(ctx, "probing "+lease.Addr.Addr().String(), err)
	case taken != "":
		c.decline(ctx, w, lease)
		c.host.tell("%s: %s offers %s, which %s; declined", c.link.Name, lease.Server, lease.Addr.Addr(), taken)
		c.drop(ctx)
		c.last = netip.Addr{}
		c.state = StateWaiting
		c.host.report(c.state, nil)
		c.backoff(ctx)
	default:
		c.set(ctx, lease)
	}
}

// set applies the lease to the stack.
func (c *client4) set(ctx context.Context, lease *Lease) {
	// Complete this even after the end of ctx; otherwise the stack would
	// have half of a lease.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyLimit)
	defer cancel()
	if err := c.apply(work, c.lease, lease); err != nil {
		c.drop(ctx)
		c.failed(ctx, "applying the lease", err)
		return
	}
	if c.lease == nil || c.lease.Addr != lease.Addr {
		c.announce(work, lease.Addr.Addr())
	}
	c.log.Debug("dhcp: bound", "link", c.link.Name, "address", lease.Addr, "server", lease.Server, "renew", lease.t1, "rebind", lease.t2, "expiry", lease.valid)
	c.lease, c.last, c.pause = lease, lease.Addr.Addr(), 0
	c.state = StateBound
}

// lose drops a lease that is no longer valid, and requests another one.
func (c *client4) lose(ctx context.Context, why string) {
	c.host.tell("%s: the lease of %s ends: %s", c.link.Name, c.lease.Addr, why)
	c.drop(ctx)
	c.last = netip.Addr{}
	c.state = StateSelecting
	c.host.report(c.state, nil)
	c.backoff(ctx)
}

// expire ends a lease that has expired.
func (c *client4) expire(ctx context.Context) {
	if c.lease != nil {
		c.host.tell("%s: the lease of %s has expired without renewal; the address is removed", c.link.Name, c.lease.Addr)
	}
	c.drop(ctx)
	c.state = StateSelecting
}

// drop removes the lease from the stack.
func (c *client4) drop(ctx context.Context) {
	if c.lease == nil {
		return
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyLimit)
	defer cancel()
	if err := c.unapply(work, c.lease); err != nil {
		c.log.Debug("dhcp: removing a lease", "link", c.link.Name, "error", err)
	}
	c.lease = nil
}

// failed reports a failure of the stack, and waits.
func (c *client4) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != nil || over(err) {
		return
	}
	c.host.tell("%s: dhcp: %s: %v", c.link.Name, what, err)
	c.state = StateWaiting
	c.host.report(c.state, c.lease)
	if c.pause == 0 {
		c.pause = firstPause
	}
	c.backoff(ctx)
}

// release returns the lease to its server, without waiting for an answer.
func (c *client4) release(ctx context.Context) {
	if c.lease == nil {
		return
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	if err := c.sendRelease(work, c.lease); err != nil {
		c.log.Debug("dhcp: releasing", "link", c.link.Name, "error", err)
		return
	}
	c.log.Debug("dhcp: released", "link", c.link.Name, "address", c.lease.Addr, "server", c.lease.Server)
}

// until returns the time left until lease l is d old; negative: forever.
func until(l *Lease, d time.Duration) time.Duration {
	if left := l.left(d); left < 1<<62 {
		return left
	}
	return -1
}
