// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Options are the options of a Client, except for its interface.
type Options struct {
	Hostname string // sent to servers; empty: none
	Log      *slog.Logger
	Notify   func(string) // prints a line for the user
	Changed  func()       // called when Statuses or Resolver change; must not block
}

// tellEvery is the minimum time between two printed lines, so that a hostile
// network cannot flood a terminal.
const tellEvery = 5 * time.Second

// stopLimit bounds the time for releasing the leases.
const stopLimit = 5 * time.Second

// Client gets and renews the addresses of one interface of a stack.
type Client struct {
	link Link
	conn *stackconn.Conn
	opts Options

	v4 *client4
	v6 *client6

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex
	statuses   []Status
	slaac      map[netip.Addr]netip.Prefix // usable addresses that the stack derived from advertisements
	rdnss      []rdnssEntry
	forgetting *time.Timer // for expired entries of rdnss
	lastNotice time.Time
	moved      chan struct{} // closed and replaced at each change
}

// rdnssEntry holds the name servers announced by a router.
type rdnssEntry struct {
	stacknet.NameServers
	until time.Time // zero: forever
}

// New returns a client for an interface. It uses the Name, Metric and wanted
// protocols of link. It reads the other properties from the stack.
func New(conn *stackconn.Conn, link Link, opts Options) *Client {
	return &Client{link: link, conn: conn, opts: opts, slaac: map[netip.Addr]netip.Prefix{}, moved: make(chan struct{})}
}

// Start starts the client. Its background work ends with Stop.
func (c *Client) Start(ctx context.Context) error {
	all, err := stacknet.Links(ctx, c.conn)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(l stacknet.LinkState) bool { return l.Name == c.link.Name })
	if i < 0 {
		return fmt.Errorf("%s: the stack has no such interface", c.link.Name)
	}
	c.link.IfIndex, c.link.MAC, c.link.MTU = all[i].Index, all[i].MAC, all[i].MTU
	ethernet := len(c.link.MAC) == 6
	if !ethernet && (c.link.V4 || c.link.V6) {
		return fmt.Errorf("%s: DHCP requires an interface with an Ethernet address", c.link.Name)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	if c.link.V4 {
		c.status(Status{Link: c.link.Name, Proto: ProtoV4, State: StateDown})
		c.v4 = &client4{client: c.client(ProtoV4), hostname: c.opts.Hostname}
		c.done.Go(func() { c.v4.run(run) })
	}
	if c.link.V6 || c.link.SLAAC && ethernet { // the identifier derives from the Ethernet address
		proto := ProtoInfo
		if c.link.V6 {
			proto = ProtoV6
			c.status(Status{Link: c.link.Name, Proto: proto, State: StateDown})
		}
		c.v6 = &client6{client: c.client(proto), full: c.link.V6}
		c.done.Go(func() { c.v6.run(run) })
	}
	if c.link.SLAAC {
		c.status(Status{Link: c.link.Name, Proto: ProtoRA, State: StateWaiting})
	}
	c.done.Go(func() { c.monitor(run) })
	return nil
}

// monitor follows the interface until ctx is done or the stack has ended. The
// end of the stack also ends the client's other work. If the program that
// contains the kernel is stopped (SIGSTOP), the stack answers later.
func (c *Client) monitor(ctx context.Context) {
	for ctx.Err() == nil {
		err := stacknet.Monitor(ctx, c.conn, c.handleNews)
		if over(err) {
			c.cancel()
			return
		}
		if ctx.Err() == nil {
			c.opts.Log.Debug("dhcp: watching the interface", "link", c.link.Name, "error", err)
			sleep(ctx, firstPause)
		}
	}
}

// over reports whether an error means that the stack no longer exists.
func over(err error) bool {
	return errors.Is(err, stackconn.ErrClosed) || errors.Is(err, syscall.ESHUTDOWN)
}

// client creates the common part of the clients of both protocols.
func (c *Client) client(proto string) client {
	return client{
		link: c.link, conn: c.conn, log: c.opts.Log,
		host: hooks{
			report: func(state string, l *Lease) {
				c.status(Status{Link: c.link.Name, Proto: proto, State: state, Lease: l})
			},
			tell: c.tell,
		},
	}
}

// Stop releases the leases and ends the client. The addresses stay, because
// data already sent may need them until it is delivered.
func (c *Client) Stop() {
	c.cancel()
	c.done.Wait() // each operation has its own timeout
	c.mu.Lock()
	if c.forgetting != nil {
		c.forgetting.Stop()
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var both sync.WaitGroup
	if c.v4 != nil {
		both.Go(func() { c.v4.release(ctx) })
	}
	if c.v6 != nil {
		both.Go(func() { c.v6.release(ctx) })
	}
	both.Wait()
}

// Renew requests the leases again, even if they do not expire soon.
func (c *Client) Renew() { c.wake(nudgeRenew) }

// RenewNow is like Renew, and waits until the leases arrive or ctx is done.
func (c *Client) RenewNow(ctx context.Context) error {
	asked := time.Now()
	c.Renew()
	return c.wait(ctx, func(s Status) bool {
		return s.Proto == ProtoRA || s.State == StateBound && s.Lease != nil && s.Lease.From.After(asked)
	})
}

// Release releases the leases and removes their addresses, until Renew.
func (c *Client) Release() { c.wake(nudgeRelease) }

// ReleaseNow is like Release, and waits until it is complete or ctx is done.
func (c *Client) ReleaseNow(ctx context.Context) error {
	c.Release()
	return c.wait(ctx, func(s Status) bool { return s.Proto == ProtoRA || s.State == StateReleased })
}

func (c *Client) wake(bit int) {
	if c.v4 != nil {
		c.v4.nudges.send(bit)
	}
	if c.v6 != nil {
		c.v6.nudges.send(bit)
	}
}

// tell prints a line, unless it printed one a moment ago.
func (c *Client) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	quiet := time.Since(c.lastNotice) < tellEvery
	if !quiet {
		c.lastNotice = time.Now()
	}
	c.mu.Unlock()
	if quiet {
		c.opts.Log.Debug(text)
		return
	}
	c.opts.Notify(text)
}

// status stores the status of a protocol's client.
func (c *Client) status(s Status) {
	c.mu.Lock()
	i := slices.IndexFunc(c.statuses, func(o Status) bool { return o.Proto == s.Proto })
	switch {
	case i < 0:
		c.statuses = append(c.statuses, s)
	case c.statuses[i] == s:
		c.mu.Unlock()
		return
	default:
		c.statuses[i] = s
	}
	c.change()
}

// change signals a change to all waiters. The caller holds c.mu, and change
// unlocks it.
func (c *Client) change() {
	close(c.moved)
	c.moved = make(chan struct{})
	c.mu.Unlock()
	c.opts.Changed()
}

// Statuses returns the status of each of the interface's clients.
func (c *Client) Statuses() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.statuses)
	sort.Slice(all, func(i, j int) bool { return all[i].Proto < all[j].Proto })
	var made []netip.Prefix
	for _, p := range c.slaac {
		made = append(made, p)
	}
	sort.Slice(made, func(i, j int) bool { return made[i].Compare(made[j]) < 0 })
	for n := range all {
		if all[n].Proto != ProtoRA || len(made) == 0 {
			continue
		}
		l := &Lease{Addr: made[0]}
		for _, h := range c.rdnss {
			l.DNS, l.Domains = append(l.DNS, h.Servers...), append(l.Domains, h.Domains...)
			if h.Router.IsValid() {
				l.Server = h.Router
			}
		}
		all[n].Lease = l
	}
	return all
}

// Missing lists the protocols that have not provided an address yet.
func (c *Client) Missing() []string {
	var all []string
	for _, s := range c.Statuses() {
		if !arrived(s) {
			all = append(all, s.Proto)
		}
	}
	return all
}

// Wait waits until no protocol is missing, or ctx is done.
func (c *Client) Wait(ctx context.Context) error { return c.wait(ctx, arrived) }

// arrived reports whether a protocol has provided all that it can.
func arrived(s Status) bool {
	return s.State == StateBound || s.State == StateRenewing || s.State == StateRebinding || s.Proto == ProtoInfo
}

// wait waits until good holds for all protocols, or ctx is done.
func (c *Client) wait(ctx context.Context, good func(Status) bool) error {
	for {
		c.mu.Lock()
		moved := c.moved
		c.mu.Unlock()
		if !slices.ContainsFunc(c.Statuses(), func(s Status) bool { return !good(s) }) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Resolver returns the name servers and search domains of the network.
func (c *Client) Resolver() (servers []netip.Addr, search []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(dns []netip.Addr, domains []string) {
		for _, a := range dns {
			if a.IsLinkLocalUnicast() && a.Is6() {
				a = a.WithZone(c.link.Name)
			}
			if !slices.Contains(servers, a) {
				servers = append(servers, a)
			}
		}
		for _, d := range domains {
			if !slices.Contains(search, d) {
				search = append(search, d)
			}
		}
	}
	for _, s := range c.statuses {
		if s.Lease != nil {
			add(s.Lease.DNS, s.Lease.Domains)
		}
	}
	for _, h := range c.rdnss {
		add(h.Servers, h.Domains)
	}
	return servers, search
}

// handleNews handles a report of the monitor.
func (c *Client) handleNews(n stacknet.News) {
	if n.IfIndex != c.link.IfIndex {
		return
	}
	if l := n.Link; l != nil {
		if c.v4 != nil {
			c.v4.nudges.setCarrier(l.Carrier && !l.Gone)
		}
		if c.v6 != nil {
			c.v6.heard(l)
		}
	}
	if a := n.Addr6; a != nil {
		if c.v6 != nil {
			c.v6.address(a)
		}
		if c.link.SLAAC {
			c.address(a)
		}
	}
	if len(n.RDNSS) > 0 && (c.link.SLAAC || c.link.V6) {
		c.nameServers(n.RDNSS)
	}
}
