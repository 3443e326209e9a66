// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Default and minimum lifetime of name servers and similar information, if the
// server does not specify one (RFC 8415, 7.6).
const (
	refreshDefault = 24 * time.Hour
	refreshLeast   = 10 * time.Minute
)

// dadLimit bounds the stack's duplicate address detection.
const dadLimit = 5 * time.Second

// client6 is the DHCPv6 client of one interface. With full set, it gets an
// address. Otherwise it queries a stateless server if a router announces one.
type client6 struct {
	client
	full bool

	state string
	lease *Lease // the lease applied to the stack

	mu     sync.Mutex
	own    netip.Addr // link-local and usable; zero: not yet
	ra     uint32     // flags of router advertisements
	trial  netip.Addr // the address that was set last
	flags  uint32     // its flags; 0: usable
	trying bool       // the stack is checking for duplicates
	moved  chan struct{}
}

// heard handles news about the interface.
func (c *client6) heard(l *stacknet.LinkNews) {
	c.nudges.setCarrier(l.Carrier && !l.Gone)
	if !l.HasRA {
		return
	}
	c.mu.Lock()
	const counts = stacknet.RAManaged | stacknet.RAOther
	changed := c.ra&counts != l.RA&counts
	c.ra = l.RA
	c.mu.Unlock()
	if changed && !c.full {
		c.nudges.send(nudgeRenew)
	}
}

// address handles news about an address of the interface.
func (c *client6) address(a *stacknet.AddressNews) {
	addr := a.Prefix.Addr()
	c.mu.Lock()
	defer c.mu.Unlock()
	good := !a.Gone && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0
	switch {
	case addr == c.trial:
		if c.flags = a.Flags; a.Gone && c.trying {
			c.flags = unix.IFA_F_DADFAILED // the kernel removes an address with a lifetime then (addrconf_dad_stop())
		}
		if c.moved != nil {
			close(c.moved)
			c.moved = nil
		}
	case !addr.IsLinkLocalUnicast():
	case good && !c.own.IsValid():
		c.own = addr
		c.nudges.send(nudgeRenew)
	case !good && c.own == addr:
		c.own = netip.Addr{}
	}
}

// owns reports whether an address belongs to the lease or is about to.
func (c *client6) owns(a netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trial == a
}

func (c *client6) source() netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// stateless reports whether a router announces stateless DHCPv6.
func (c *client6) stateless() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ra&(stacknet.RAManaged|stacknet.RAOther) != 0
}

// run serves the interface until ctx is done. The applied lease stays.
func (c *client6) run(ctx context.Context) { c.drive(ctx, c) }

func (c *client6) report() {
	if c.full || c.stateless() {
		c.host.report(c.state, c.lease)
	}
}

func (c *client6) restart(carrier bool) {
	switch {
	case !carrier:
		c.state = StateDown
	case !c.source().IsValid(), !c.full && !c.stateless():
		c.state = StateWaiting
	case c.lease != nil && c.full:
		c.state = StateRebooting
	default:
		c.state = StateSelecting
	}
}

func (c *client6) handleNudge(ctx context.Context, bits int, carrier bool) {
	switch {
	case bits&nudgeRelease != 0:
		c.release(ctx)
		c.drop(ctx)
		c.state = StateReleased
		return
	case bits&nudgeCarrier != 0 && c.state != StateReleased:
		c.pause = 0
		c.restart(carrier)
		return
	}
	switch {
	case bits&nudgeRenew == 0:
	case c.state == StateBound && c.full:
		c.state = StateRenewing
	case c.state == StateBound, c.state == StateWaiting, c.state == StateReleased:
		c.pause = 0
		c.restart(carrier)
	}
}

func (c *client6) step(ctx context.Context) {
	switch c.state {
	case StateDown:
		if c.lease == nil || !c.full {
			sleep(ctx, -1)
		} else if sleep(ctx, until(c.lease, c.lease.valid)) {
			c.expire(ctx)
			c.state = StateDown
		}
	case StateReleased:
		sleep(ctx, -1)
	case StateWaiting:
		if c.source().IsValid() && (c.full || c.stateless()) {
			c.backoff(ctx)
			c.state = StateSelecting
			return
		}
		sleep(ctx, -1)
	case StateBound:
		if sleep(ctx, until(c.lease, c.lease.t1)) {
			if c.state = StateRenewing; !c.full {
				c.state = StateSelecting
			}
		}
	default:
		c.talk(ctx)
	}
}

// talk performs the steps that need a socket.
func (c *client6) talk(ctx context.Context) {
	w, err := openWire6(ctx, c.conn, &c.link, c.source())
	if err != nil {
		c.failed(ctx, "opening a socket", err)
		return
	}
	defer w.close()
	switch {
	case !c.full:
		c.inform(ctx, w)
	case c.state == StateRebooting:
		c.confirm(ctx, w)
	case c.state == StateRenewing:
		c.extend(ctx, w, dhcpv6.MessageTypeRenew, c.lease.t2, StateRebinding)
	case c.state == StateRebinding:
		c.extend(ctx, w, dhcpv6.MessageTypeRebind, c.lease.valid, "")
	default:
		c.acquire(ctx, w)
	}
}

// extend tries to renew or rebind the lease until the lease is end old.
func (c *client6) extend(ctx context.Context, w *wire6, typ dhcpv6.MessageType, end time.Duration, then string) {
	limit := ctx
	if left := until(c.lease, end); left >= 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	retry := renewRetry
	if left := until(c.lease, c.lease.valid); left >= 0 { // request a short lease at least twice
		retry.first = min(retry.first, max(left/8, 200*time.Millisecond))
	}
	lease, err := c.exchange(limit, w, typ, c.lease, retry)
	switch {
	case lease != nil:
		c.set(ctx, w, lease)
	case ctx.Err() != nil:
	case errors.Is(err, errRefused):
		c.lose(ctx, err.Error())
	case then == "":
		c.expire(ctx)
	default:
		c.state = then
	}
}

// set applies the lease to the stack.
func (c *client6) set(ctx context.Context, w *wire6, l *Lease) {
	old := c.lease
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyLimit)
	defer cancel()
	same := old != nil && old.Addr == l.Addr
	if !same {
		if other, err := c.elsewhere(work, l.Addr.Addr()); err != nil || other != "" {
			c.decline(work, w, l, other)
			return
		}
	}
	c.try(l.Addr.Addr())
	err := stacknet.SetLeased(work, c.conn, stacknet.Leased{
		IfIndex: c.link.IfIndex, Prefix: l.Addr, Preferred: l.left(l.preferred), Valid: l.left(l.valid),
	})
	if err != nil {
		c.failed(ctx, "applying the lease", err)
		return
	}
	if !c.unique(work) {
		_ = stacknet.RemoveAddress(work, c.conn, c.link.IfIndex, l.Addr) // it may be gone already
		c.decline(work, w, l, "another host already uses")
		if same {
			c.lease = nil
		}
		return
	}
	if old != nil && !same {
		if err := stacknet.RemoveAddress(work, c.conn, c.link.IfIndex, old.Addr); err != nil {
			c.log.Debug("dhcp6: removing an address", "link", c.link.Name, "error", err)
		}
	}
	c.log.Debug("dhcp6: bound", "link", c.link.Name, "address", l.Addr, "renew", l.t1, "rebind", l.t2, "expiry", l.valid)
	c.lease, c.pause, c.state = l, 0, StateBound
}

// try records the address that is about to be set.
func (c *client6) try(a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trial, c.flags, c.trying = a, unix.IFA_F_TENTATIVE, true
}

// unique waits until the stack has checked that no other host has the address.
func (c *client6) unique(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dadLimit)
	defer cancel()
	defer func() {
		c.mu.Lock()
		c.trying = false
		c.mu.Unlock()
	}()
	for {
		c.mu.Lock()
		flags := c.flags
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.mu.Unlock()
		switch {
		case flags&unix.IFA_F_DADFAILED != 0:
			return false
		case flags&unix.IFA_F_TENTATIVE == 0:
			return true
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return true // the check continues; a failure arrives as news
		}
	}
}

func (c *client6) lose(ctx context.Context, why string) {
	c.host.tell("%s: the lease of %s ends: the DHCPv6 server reports %s", c.link.Name, c.lease.Addr, why)
	c.drop(ctx)
	c.state = StateSelecting
	c.host.report(c.state, nil)
	c.backoff(ctx)
}

func (c *client6) expire(ctx context.Context) {
	c.host.tell("%s: the lease of %s has expired without renewal; the address is removed", c.link.Name, c.lease.Addr)
	c.drop(ctx)
	c.state = StateSelecting
}

// drop removes the lease from the stack.
func (c *client6) drop(ctx context.Context) {
	if c.lease == nil {
		return
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyLimit)
	defer cancel()
	if c.full {
		if err := stacknet.RemoveAddress(work, c.conn, c.link.IfIndex, c.lease.Addr); err != nil {
			c.log.Debug("dhcp6: removing an address", "link", c.link.Name, "error", err)
		}
	}
	c.mu.Lock()
	c.trial = netip.Addr{}
	c.mu.Unlock()
	c.lease = nil
}

func (c *client6) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != nil || over(err) {
		return
	}
	c.host.tell("%s: dhcp6: %s: %v", c.link.Name, what, err)
	c.state = StateWaiting
	if c.pause == 0 {
		c.pause = firstPause
	}
}
