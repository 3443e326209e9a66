// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Configure applies cfg to the stack's network. It may be called again: settings that are
// already as wanted are left alone.
func Configure(ctx context.Context, c *stackconn.Conn, cfg Config) error {
	n, err := Open(ctx, c)
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Configure(ctx, cfg)
}

// Configure is like the function Configure, over n.
func (n *Netlink) Configure(ctx context.Context, cfg Config) error {
	// Meanwhile, look for the links and the path manager.
	var states []LinkState
	var lerr error
	var looking sync.WaitGroup
	looking.Go(func() {
		if states, lerr = n.r.links(); lerr == nil && cfg.MPTCP != nil {
			_ = n.path() // the request reports the error
		}
	})
	err := ApplySysctls(ctx, n.c, cfg.Sysctls, cfg.Without)
	looking.Wait()
	if err := cmp.Or(err, lerr); err != nil {
		return err
	}
	s := steps{n: n}
	if lo, ok := findLink(states, "lo"); ok {
		for _, q := range setLink(lo, nil, 0) {
			s.addWith(q, func(err error) error { return fmt.Errorf("setting lo up: %w", err) })
		}
	}
	if err := s.links(states, cfg.Links); err != nil {
		return err
	}
	if m := cfg.MPTCP; m != nil {
		s.link = ""
		s.addWith(SetLimits(*m), func(err error) error {
			return fmt.Errorf("setting the MPTCP limits to %d subflows and %d accepted addresses: %w", m.Subflows, m.AddAddrAccepted, err)
		})
	}
	return s.apply()
}

// ConfigureLinks configures links of a running stack and does not change other links.
func ConfigureLinks(ctx context.Context, c *stackconn.Conn, links ...Link) error {
	n, err := Open(ctx, c)
	if err != nil {
		return err
	}
	defer n.Close()
	states, err := n.r.links()
	if err != nil {
		return err
	}
	s := steps{n: n}
	if err := s.links(states, links); err != nil {
		return err
	}
	return s.apply()
}

// steps are changes that are made together, because each answer takes long compared with its
// request.
type steps struct {
	n        *Netlink
	link     string // for the errors of the next steps; "": they are not about a link
	requests []Request
	explain  []func(error) error
}

// addWith adds a step. explain adds to its error the step that failed.
func (s *steps) addWith(q Request, explain func(error) error) {
	if link, why := s.link, explain; link != "" {
		explain = func(err error) error { return &LinkError{Link: link, Err: why(err)} }
	}
	s.requests, s.explain = append(s.requests, q), append(s.explain, explain)
}

// add adds a step with its description.
func (s *steps) add(q Request, format string, args ...any) {
	s.addWith(q, func(err error) error { return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err) })
}

// apply makes the changes and returns the error of the first that failed.
func (s *steps) apply() error {
	requests, explain := s.requests, s.explain
	s.requests, s.explain = nil, nil
	for i, err := range s.n.Do(requests...) {
		if err != nil {
			return explain[i](err)
		}
	}
	return nil
}

func (s *steps) links(states []LinkState, links []Link) error {
	for _, l := range links {
		state, ok := findLink(states, l.Name)
		if !ok {
			return fmt.Errorf("configuring %s: the stack has no such interface, it has %s", l.Name, names(states))
		}
		s.link = l.Name
		if err := s.configure(state, l); err != nil {
			return err
		}
	}
	return nil
}

// LinkError is the error for an interface that could not be configured.
type LinkError struct {
	Link string
	Err  error // the failed step and the stack's error
}

// Error names the interface.
func (e *LinkError) Error() string { return fmt.Sprintf("configuring %s: %v", e.Link, e.Err) }

// Unwrap returns the underlying error.
func (e *LinkError) Unwrap() error { return e.Err }

func (s *steps) configure(state LinkState, l Link) error {
	state, err := s.device(state, l)
	if err != nil {
		return err
	}
	for _, p := range l.Addrs {
		s.add(addressRequest(unix.RTM_NEWADDR, netlink.Create|netlink.Replace, state.Index, p), "adding address %v", p)
	}
	via := func(dst netip.Prefix, gw netip.Addr) Request {
		return SetRoute(Route{
			Table: unix.RT_TABLE_MAIN, Dst: dst, Gateway: gw, Ifindex: state.Index, Metric: l.Metric,
			OnLink: !onLink(l.Addrs, gw), Proto: unix.RTPROT_STATIC,
		})
	}
	for _, gw := range []netip.Addr{l.GW4, l.GW6} {
		if gw.IsValid() {
			s.add(via(everywhere(gw), gw), "adding the default route via %v", gw)
		}
	}
	for _, r := range l.Routes {
		s.add(via(r.To, r.Via), "adding the route to %v via %v", r.To, r.Via)
	}
	for _, dst := range directRoutes(l) {
		e := Route{Table: unix.RT_TABLE_MAIN, Dst: dst, Ifindex: state.Index, Metric: l.Metric, Proto: unix.RTPROT_STATIC}
		s.add(SetRoute(e), "adding the route to %v", dst)
	}
	return nil
}

// everywhere is the destination of a default route of a's family.
func everywhere(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// directRoutes are the destinations of a Direct link's own routes.
func directRoutes(l Link) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range l.Addrs {
		gw, reach := l.GW4, l.Reach
		if p.Addr().Is6() {
			gw = l.GW6
		}
		if len(reach) == 0 {
			reach = []netip.Prefix{everywhere(p.Addr())}
		}
		for _, to := range reach {
			if l.Direct && !gw.IsValid() && to.Addr().Is4() == p.Addr().Is4() && !slices.Contains(all, to) {
				all = append(all, to)
			}
		}
	}
	return all
}

// onLink reports whether gw is in the network of one of addrs. A link-local gateway is on
// any link.
func onLink(addrs []netip.Prefix, gw netip.Addr) bool {
	return gw.IsLinkLocalUnicast() || slices.ContainsFunc(addrs, func(p netip.Prefix) bool {
		return p.Masked().Contains(gw)
	})
}

func findLink(states []LinkState, name string) (LinkState, bool) {
	i := slices.IndexFunc(states, func(s LinkState) bool { return s.Name == name })
	if i < 0 {
		return LinkState{}, false
	}
	return states[i], true
}

func names(states []LinkState) string {
	var all []string
	for _, s := range states {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}

// wanted describes the requested settings of a link, for messages.
func wanted(l Link) string {
	var s string
	if len(l.MAC) > 0 {
		s += " with MAC " + l.MAC.String()
	}
	if l.MTU > 0 {
		s += fmt.Sprintf(" with MTU %d", l.MTU)
	}
	return s
}
