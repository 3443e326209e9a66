// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/stacknet"
)

// Options are what a Client needs beside its interface.
type Options struct {
	Hostname string // that servers are told; empty: none
	Log      *slog.Logger
	Tell     func(string) // a line for the user
	Changed  func()       // Statuses or Resolver say something else now; must not wait
}

// tellEvery is how often a line may come: a hostile network shall not fill a
// terminal.
const tellEvery = 5 * time.Second

// stopLimit bounds the end of a Client.
const stopLimit = 5 * time.Second

// Client keeps one interface of a stack supplied with addresses.
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
	slaac      map[netip.Addr]netip.Prefix // that the stack made of advertisements, usable
	rdnss      []heard
	forgetting *time.Timer // of rdnss
	told       time.Time
	moved      chan struct{} // closed with the next change, and made anew
}

// heard is what a router said of name servers.
type heard struct {
	stacknet.NameServers
	until time.Time // zero: for ever
}

// New makes a client for an interface; Name, Metric and what is wanted of link
// are looked at, the rest the stack tells.
func New(conn *stackconn.Conn, link Link, opts Options) *Client {
	return &Client{link: link, conn: conn, opts: opts, slaac: map[netip.Addr]netip.Prefix{}, moved: make(chan struct{})}
}

// Start begins. What goes on afterwards ends with Stop.
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
		return fmt.Errorf("%s: DHCP needs an interface with an Ethernet address", c.link.Name)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	if c.link.V4 {
		c.status(Status{Link: c.link.Name, Proto: ProtoV4, State: StateDown})
		c.v4 = &client4{client: c.client(ProtoV4), hostname: c.opts.Hostname}
		c.done.Go(func() { c.v4.run(run) })
	}
	if c.link.V6 || c.link.SLAAC && ethernet { // its identifier is made of the address
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

// monitor follows the interface until ctx is done or the stack has ended, and all
// with it. A program that was stopped with its kernel inside answers again later.
func (c *Client) monitor(ctx context.Context) {
	for ctx.Err() == nil {
		err := stacknet.Monitor(ctx, c.conn, c.news)
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

// over says whether an error means that there is no stack any more.
func over(err error) bool {
	return errors.Is(err, stackconn.ErrClosed) || errors.Is(err, syscall.ESHUTDOWN)
}

// client makes what both protocols' clients have.
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

// Stop gives the leases back and ends the client. The addresses stay: what was
// sent may still have to arrive.
func (c *Client) Stop() {
	c.cancel()
	c.done.Wait() // what runs has limits of its own
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

// Renew asks for the leases anew, whatever their times.
func (c *Client) Renew() { c.nudge(nudgeRenew) }

// RenewNow does so and waits until they are there, or ctx is done.
func (c *Client) RenewNow(ctx context.Context) error {
	asked := time.Now()
	c.Renew()
	return c.wait(ctx, func(s Status) bool {
		return s.Proto == ProtoRA || s.State == StateBound && s.Lease != nil && s.Lease.From.After(asked)
	})
}

// Release gives the leases back and takes their addresses away, until Renew.
func (c *Client) Release() { c.nudge(nudgeRelease) }

// ReleaseNow does so and waits until it is done, or ctx is.
func (c *Client) ReleaseNow(ctx context.Context) error {
	c.Release()
	return c.wait(ctx, func(s Status) bool { return s.Proto == ProtoRA || s.State == StateReleased })
}

func (c *Client) nudge(bit int) {
	if c.v4 != nil {
		c.v4.nudges.send(bit)
	}
	if c.v6 != nil {
		c.v6.nudges.send(bit)
	}
}

// tell says a line, unless there was one a moment ago.
func (c *Client) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	quiet := time.Since(c.told) < tellEvery
	if !quiet {
		c.told = time.Now()
	}
	c.mu.Unlock()
	if quiet {
		c.opts.Log.Debug(text)
		return
	}
	c.opts.Tell(text)
}

// status keeps what a client is at.
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

// change tells everybody that something did; c.mu is held, and let go.
func (c *Client) change() {
	close(c.moved)
	c.moved = make(chan struct{})
	c.mu.Unlock()
	c.opts.Changed()
}

// Statuses are what the interface's clients are at.
func (c *Client) Statuses() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.statuses)
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Proto, b.Proto) })
	var made []netip.Prefix
	for _, p := range c.slaac {
		made = append(made, p)
	}
	slices.SortFunc(made, netip.Prefix.Compare)
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

// Missing lists the protocols that have not brought an address yet.
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

// arrived says whether a protocol has brought what it can.
func arrived(s Status) bool {
	return s.State == StateBound || s.State == StateRenewing || s.State == StateRebinding || s.Proto == ProtoInfo
}

// wait waits until all protocols are as they shall be, or ctx is done.
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

// Resolver returns the name servers and search domains that the network gave.
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

// news takes what the monitor tells.
func (c *Client) news(n stacknet.News) {
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
