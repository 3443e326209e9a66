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

	"github.com/lklrun/lklrun/internal/stackconn"
)

// Times of the client's own. RFC 2131, 4.1, names the first two; RFC 5227 would
// have an address probed for four to nine seconds, which nobody waits for who
// starts a program.
const (
	firstRetry    = 4 * time.Second
	mostRetry     = 64 * time.Second
	retrySpread   = time.Second
	requestTries  = 3
	rebootTries   = 2
	probes        = 3
	probeInterval = 200 * time.Millisecond
	firstPause    = time.Second // after a conflict, a refusal or a failure; doubled by the next
	mostPause     = time.Minute
	junkMost      = 256 // datagrams that are not for us, while we wait for one that is
)

// client is what both protocols' clients have.
type client struct {
	link   Link
	conn   *stackconn.Conn
	log    *slog.Logger
	host   hooks
	nudges nudges
	pause  time.Duration // before the next try
}

// hooks are how a client tells what becomes of it.
type hooks struct {
	report func(state string, l *Lease) // a state, and the lease it has
	tell   func(format string, args ...any)
}

// states is what a protocol's client does, state by state.
type states interface {
	// restart is where it begins when the interface has a carrier, or none.
	restart(carrier bool)
	// report tells the state, where that is of interest.
	report()
	// step does what the state asks for until it is done or ctx is.
	step(ctx context.Context)
	// heed does what a nudge says, between two steps.
	heed(ctx context.Context, bits int, carrier bool)
}

// drive takes s from state to state until ctx is done.
func (c *client) drive(ctx context.Context, s states) {
	_, carrier := c.nudges.take()
	s.restart(carrier)
	for ctx.Err() == nil {
		s.report()
		phase, cancel := c.nudges.arm(ctx)
		s.step(phase)
		cancel()
		if bits, carrier := c.nudges.take(); bits != 0 {
			s.heed(ctx, bits, carrier)
		}
	}
}

// hear hands datagrams to take until it is content or ctx ends. After a flood of
// those that are not, nobody listens for the rest of that time.
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
	lease *Lease     // that is set in the stack
	last  netip.Addr // asked for again
}

// run keeps the interface supplied until ctx is done. What is set stays then.
func (c *client4) run(ctx context.Context) { c.drive(ctx, c) }

func (c *client4) report() { c.host.report(c.state, c.lease) }

// restart is where a client begins whose interface has a carrier, or none.
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

// heed does what a nudge says, between two steps.
func (c *client4) heed(ctx context.Context, bits int, carrier bool) {
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

// step does what the state asks for until it is done or ctx is.
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

// until is the time left to a point of the lease; below zero: it never comes.
func (c *client4) until(d time.Duration) time.Duration { return until(c.lease, d) }

func (c *client4) untilExpiry() time.Duration {
	if c.lease == nil {
		return -1
	}
	return c.until(c.lease.valid)
}

// sleep waits for d, for ever when it is below zero; false: ctx ended first.
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

// rest waits before the next try, longer each time.
func (c *client) rest(ctx context.Context) {
	if c.pause > 0 && sleep(ctx, jitter(c.pause, c.pause/4)) {
		c.pause = min(2*c.pause, mostPause)
	}
	if c.pause == 0 {
		c.pause = firstPause
	}
}

// jitter is d, give or take spread.
func jitter(d, spread time.Duration) time.Duration {
	if spread <= 0 {
		return d
	}
	return d - spread + rand.N(2*spread)
}

// acquire gets an address from scratch, and sets it.
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
		return // ctx ended, for it tries as long as that
	}
	c.state = StateRequesting
	c.host.report(c.state, c.lease)
	lease, nak := c.request(ctx, w, c.selecting(offer), requestTries, func(l *Lease) bool { return l.Server == offer.Server })
	if lease == nil {
		if c.state = StateSelecting; nak {
			c.log.Debug("dhcp: the server takes its offer back", "link", c.link.Name)
			c.rest(ctx)
		}
		return
	}
	c.settle(ctx, w, lease)
}

// reboot asks whether the lease still holds on a network that may be another one
// (RFC 2131, INIT-REBOOT).
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
		c.lose(ctx, "the network's server knows it not")
	case c.until(old.valid) == 0:
		c.expire(ctx)
	default:
		// Nobody answers. The lease is ours until it ends.
		c.set(ctx, old)
	}
}

// extend renews or rebinds the lease, until so far into it.
func (c *client4) extend(ctx context.Context, server netip.Addr, end time.Duration, then string) {
	w, err := openUDP(ctx, c.conn, &c.link, c.lease.Addr.Addr(), server)
	if errors.Is(err, syscall.EADDRNOTAVAIL) { // somebody took the address away
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
		case left < 0: // somebody asked for it; nothing presses
			left = 2 * time.Minute
		}
		// RFC 2131, 4.4.5: half of what is left, though no less than a minute.
		// A lease of less than some minutes would then be asked for but once.
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
			c.lose(ctx, "the server takes it back")
			return
		}
	}
}

// late goes on when nobody extended the lease in time.
func (c *client4) late(ctx context.Context, then string) {
	if then == "" {
		c.expire(ctx)
		return
	}
	c.state = then
}

// settle takes a lease that was given unless somebody else has its address.
func (c *client4) settle(ctx context.Context, w *packetWire, lease *Lease) {
	taken, err := c.taken(ctx, lease.Addr.Addr())
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.failed(ctx, "probing "+lease.Addr.Addr().String(), err)
	case taken != "":
		c.decline(ctx, w, lease)
		c.host.tell("%s: %s offers %s, which %s: declined", c.link.Name, lease.Server, lease.Addr.Addr(), taken)
		c.drop(ctx)
		c.last = netip.Addr{}
		c.state = StateWaiting
		c.host.report(c.state, nil)
		c.rest(ctx)
	default:
		c.set(ctx, lease)
	}
}

// set brings the stack to the lease.
func (c *client4) set(ctx context.Context, lease *Lease) {
	// What was begun is finished, or the stack would have half of a lease.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyLimit)
	defer cancel()
	if err := c.apply(work, c.lease, lease); err != nil {
		c.drop(ctx)
		c.failed(ctx, "setting what the server gave", err)
		return
	}
	if c.lease == nil || c.lease.Addr != lease.Addr {
		c.announce(work, lease.Addr.Addr())
	}
	c.log.Debug("dhcp: bound", "link", c.link.Name, "address", lease.Addr, "server", lease.Server, "renew", lease.t1, "rebind", lease.t2, "expiry", lease.valid)
	c.lease, c.last, c.pause = lease, lease.Addr.Addr(), 0
	c.state = StateBound
}

// lose gives up a lease that is ours no more, and looks for another.
func (c *client4) lose(ctx context.Context, why string) {
	c.host.tell("%s: %s is given up: %s", c.link.Name, c.lease.Addr, why)
	c.drop(ctx)
	c.last = netip.Addr{}
	c.state = StateSelecting
	c.host.report(c.state, nil)
	c.rest(ctx)
}

// expire ends a lease whose time is over.
func (c *client4) expire(ctx context.Context) {
	if c.lease != nil {
		c.host.tell("%s: the lease of %s is over and nobody renewed it: the address is removed", c.link.Name, c.lease.Addr)
	}
	c.drop(ctx)
	c.state = StateSelecting
}

// drop takes the lease out of the stack.
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

// failed says what the stack did not do, and waits.
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
	c.rest(ctx)
}

// release gives the lease back to its server. It does not wait for anything.
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

// until is what is left until so far into a lease; below zero: for ever.
func until(l *Lease, d time.Duration) time.Duration {
	if left := l.left(d); left < 1<<62 {
		return left
	}
	return -1
}
