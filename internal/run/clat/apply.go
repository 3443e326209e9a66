// SPDX-License-Identifier: Apache-2.0

package clat

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// Priorities of the rules, before those of the interfaces' own addresses. For IPv6,
// forwarding is either on or off for all interfaces. So these rules let through only the
// packets of the clat, and only to the interface that it is over.
const (
	priorityIn    = 900 // from the uplink to our address
	priorityOut   = 901 // from our address to the prefix
	priorityFinal = 910 // no other packets
)

const forwardingKey = "net/ipv6/conf/all/forwarding"

// set replaces the applied settings; nil: there are none. If it fails, it is called again.
func (s *Service) set(ctx context.Context, w *state) error {
	n, err := stacknet.Open(ctx, s.Conn)
	if err != nil {
		return err
	}
	defer n.Close()
	if w != nil {
		if err := s.Forwarding.start(ctx, s.Conn, n, s.Name); err != nil {
			return err
		}
	}
	if w != nil && s.complete && *s.applied == *w {
		return nil
	}
	own, ok, err := n.Link(s.Name)
	if err != nil || !ok {
		s.Translate(netip.Addr{}, netip.Prefix{})
		return err
	}
	if s.applied != nil {
		if err := s.clear(ctx, n, own.Index); err != nil {
			return err
		}
	}
	if w == nil {
		return nil
	}
	s.mu.Lock()
	s.applied = w
	s.mu.Unlock()
	if err := s.apply(ctx, n, own.Index); err != nil {
		return err
	}
	s.complete = true
	return nil
}

// clear undoes the applied settings.
func (s *Service) clear(ctx context.Context, n *stacknet.Netlink, ifindex int) error {
	s.Translate(netip.Addr{}, netip.Prefix{})
	s.complete = false
	errs := n.Do(append(s.settings(s.applied, ifindex).undo, stacknet.DelRoute(s.route(s.applied, ifindex)))...)
	if err := errors.Join(append(errs, stacknet.RemoveAddress(ctx, s.Conn, ifindex, s.address()))...); err != nil {
		return err
	}
	s.mu.Lock()
	s.applied = nil
	s.mu.Unlock()
	return nil
}

// apply makes the settings. The IPv4 route comes last, so that no program uses it too early.
func (s *Service) apply(ctx context.Context, n *stacknet.Netlink, ifindex int) error {
	w := s.applied
	c := s.settings(w, ifindex)
	for _, x := range c.sysctls {
		if err := stacknet.SetSysctl(ctx, s.Conn, x.Key, x.Value); err != nil {
			return err
		}
	}
	if err := stacknet.SetMTU(ctx, s.Conn, ifindex, w.mtu); err != nil {
		return err
	}
	if err := errors.Join(n.Do(c.do...)...); err != nil {
		return err
	}
	s.Translate(w.own6, w.prefix)
	address := stacknet.Leased{IfIndex: ifindex, Prefix: s.address(), Preferred: stacknet.Forever, Valid: stacknet.Forever}
	if err := stacknet.SetLeased(ctx, s.Conn, address); err != nil {
		return err
	}
	return n.Do(stacknet.SetRoute(s.route(w, ifindex)))[0]
}

func (s *Service) address() netip.Prefix { return netip.PrefixFrom(s.Plan.Own, 32) }

// route returns the default route of IPv4. The interface also receives IPv6 packets, so only
// the route has the lower MTU.
func (s *Service) route(w *state, ifindex int) stacknet.Route {
	return stacknet.Route{
		Table: unix.RT_TABLE_MAIN, Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Src: s.Plan.Own, Ifindex: ifindex,
		Metric: s.Metric, Scope: unix.RT_SCOPE_LINK, Proto: unix.RTPROT_DHCP, Metrics: stacknet.MTUMetrics(w.mtu - headerDifference),
	}
}

// headerDifference is the number of bytes by which an IPv6 header is longer.
const headerDifference = 20

// settings are changes to the stack's IPv6.
type settings struct {
	sysctls  []stacknet.Sysctl
	do, undo []stacknet.Request
}

// settings returns the changes that forward the packets between uplink and clat.
func (s *Service) settings(w *state, ifindex int) (c settings) {
	host := netip.PrefixFrom(w.own6, 128)
	for _, r := range []stacknet.ForwardRule{
		{Priority: priorityIn, In: w.uplink, Dst: host, Table: unix.RT_TABLE_MAIN},
		{Priority: priorityOut, In: s.Name, Src: host, Dst: w.prefix, Table: w.table},
		{Priority: priorityFinal, In: s.Name},
	} {
		c.do, c.undo = append(c.do, stacknet.AddForwardRule(r)), append(c.undo, stacknet.DelForwardRule(r))
	}
	to := stacknet.Route{Table: unix.RT_TABLE_MAIN, Dst: host, Ifindex: ifindex, Metric: s.Metric, Proto: unix.RTPROT_STATIC}
	c.do, c.undo = append(c.do, stacknet.SetRoute(to)), append(c.undo, stacknet.DelRoute(to))
	if w.proxied {
		c.sysctls = []stacknet.Sysctl{
			{Key: "net/ipv6/conf/" + w.uplink + "/proxy_ndp", Value: "1"},
			{Key: "net/ipv6/neigh/" + w.uplink + "/proxy_delay", Value: "0"}, // nobody else answers for the address
		}
		c.do, c.undo = append(c.do, stacknet.AddProxy(w.index, w.own6)), append(c.undo, stacknet.DelProxy(w.index, w.own6))
	}
	return c
}

// Forwarding is the stack's forwarding of IPv6, which all clats of a run share. The zero
// Forwarding is ready to use.
type Forwarding struct {
	mu    sync.Mutex
	users map[string]bool // the clats that need it
	ours  bool            // we have turned it on
	rules map[string]bool // interfaces whose packets are not forwarded
}

// start turns forwarding on for a clat, unless the user has. Then it is the user's decision
// what other interfaces forward. It is called again after each change of the interfaces.
func (f *Forwarding) start(ctx context.Context, conn *stackconn.Conn, n *stacknet.Netlink, clat string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ours {
		on, err := stacknet.GetSysctl(ctx, conn, forwardingKey)
		if err != nil || on != "0" {
			return err
		}
		f.users, f.rules = map[string]bool{}, map[string]bool{}
	}
	f.users[clat] = true
	links, err := n.Links()
	if err != nil {
		return err
	}
	// lklrun may add interfaces with these names later.
	names := map[string]bool{}
	for i := range config.MaxInterfaces {
		names[fmt.Sprintf("eth%d", i)] = true
	}
	for _, l := range links {
		names[l.Name] = !l.Loopback()
	}
	for name, wanted := range names {
		if !wanted || f.rules[name] {
			continue
		}
		if err := n.Do(stacknet.AddForwardRule(stacknet.ForwardRule{Priority: priorityFinal, In: name}))[0]; err != nil {
			return fmt.Errorf("the stack cannot restrict its forwarding: %w", err)
		}
		f.rules[name] = true
	}
	if f.ours {
		return nil
	}
	f.ours = true
	return stacknet.SetSysctl(ctx, conn, forwardingKey, "1")
}

// stop turns forwarding off after the last clat. The rules stay, because they only drop what
// forwarding would forward.
func (f *Forwarding) stop(ctx context.Context, conn *stackconn.Conn, clat string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.users, clat)
	if !f.ours || len(f.users) > 0 {
		return nil
	}
	f.ours = false
	return stacknet.SetSysctl(ctx, conn, forwardingKey, "0")
}
