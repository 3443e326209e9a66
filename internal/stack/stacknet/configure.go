// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	c := n.c
	for i, err := range SetSysctls(ctx, c, cfg.Sysctls) {
		if setting := new(SysctlError); cfg.Sysctls[i].Optional && cfg.Without != nil && errors.As(err, &setting) {
			cfg.Without(setting)
		} else if err != nil {
			return err
		}
	}
	states, err := n.r.links()
	if err != nil {
		return err
	}
	if lo, ok := findLink(states, "lo"); ok {
		if err := n.r.setLink(lo, nil, 0); err != nil {
			return fmt.Errorf("setting lo up: %w", err)
		}
	}
	if err := configureLinks(n.r, states, cfg.Links); err != nil {
		return err
	}
	if m := cfg.MPTCP; m != nil {
		if err := n.Do(SetLimits(*m))[0]; err != nil {
			return fmt.Errorf("setting the MPTCP limits to %d subflows and %d accepted addresses: %w", m.Subflows, m.AddAddrAccepted, err)
		}
	}
	return nil
}

// ConfigureLinks configures links of a running stack and does not change other links.
func ConfigureLinks(ctx context.Context, c *stackconn.Conn, links ...Link) error {
	r, err := openRoute(ctx, c)
	if err != nil {
		return err
	}
	defer r.close()
	states, err := r.links()
	if err != nil {
		return err
	}
	return configureLinks(r, states, links)
}

func configureLinks(r *rtnl, states []LinkState, links []Link) error {
	for _, l := range links {
		state, ok := findLink(states, l.Name)
		if !ok {
			return fmt.Errorf("configuring %s: the stack has no such interface, it has %s", l.Name, names(states))
		}
		if err := configureLink(r, state, l); err != nil {
			return &LinkError{Link: l.Name, Err: err}
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

func configureLink(r *rtnl, state LinkState, l Link) error {
	state, err := configureDevice(r, state, l)
	if err != nil {
		return err
	}
	for _, p := range l.Addrs {
		if err := r.setAddress(state.Index, p); err != nil {
			return fmt.Errorf("adding address %v: %w", p, err)
		}
	}
	via := func(dst netip.Prefix, gw netip.Addr) error {
		return r.setRoute(Route{
			Table: unix.RT_TABLE_MAIN, Dst: dst, Gateway: gw, Ifindex: state.Index, Metric: l.Metric,
			OnLink: !onLink(l.Addrs, gw), Proto: unix.RTPROT_STATIC,
		})
	}
	for _, gw := range []netip.Addr{l.GW4, l.GW6} {
		if !gw.IsValid() {
			continue
		}
		if err := via(everywhere(gw), gw); err != nil {
			return fmt.Errorf("adding the default route via %v: %w", gw, err)
		}
	}
	for _, s := range l.Routes {
		if err := via(s.To, s.Via); err != nil {
			return fmt.Errorf("adding the route to %v via %v: %w", s.To, s.Via, err)
		}
	}
	for _, dst := range directRoutes(l) {
		e := Route{Table: unix.RT_TABLE_MAIN, Dst: dst, Ifindex: state.Index, Metric: l.Metric, Proto: unix.RTPROT_STATIC}
		if err := r.setRoute(e); err != nil {
			return fmt.Errorf("adding the route to %v: %w", dst, err)
		}
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
