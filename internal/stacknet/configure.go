// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stackconn"
)

const (
	// firstMetric is the metric of the first link's default route in the main
	// table; the following links' are one higher each, so that the first is
	// used for whatever binds to no address. The first subflow of an MPTCP
	// connection is such a case.
	firstMetric = 100

	// firstPriority is where the rules for the links' addresses begin: before
	// main's 32766.
	firstPriority = 1000
)

// Configure brings the stack's network to cfg. It may be called again: what is
// so already is left alone.
func Configure(ctx context.Context, c *stackconn.Conn, cfg Config) error {
	if err := MountFilesystems(ctx, c); err != nil {
		return err
	}
	for _, s := range cfg.Sysctls {
		if err := SetSysctl(ctx, c, s.Key, s.Value); err != nil {
			return err
		}
	}
	r, err := openRoute(ctx, c)
	if err != nil {
		return err
	}
	defer r.close()
	states, err := r.links()
	if err != nil {
		return err
	}
	if err := configureLinks(r, states, cfg.Links); err != nil {
		return err
	}
	return configureMPTCP(ctx, c, states, cfg)
}

// MountFilesystems mounts /proc and /sys in the stack where they are not yet.
func MountFilesystems(ctx context.Context, c *stackconn.Conn) error {
	for _, m := range []struct{ fstype, path, probe string }{
		{"proc", "/proc", "/proc/sys"},
		{"sysfs", "/sys", "/sys/class"},
	} {
		if f, err := c.Open(ctx, m.probe, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
			f.Close()
			continue
		} else if !errors.Is(err, syscall.ENOENT) {
			return err
		}
		if err := c.Mkdir(ctx, m.path); err != nil {
			return err
		}
		if err := c.Mount(ctx, m.fstype, m.path); err != nil {
			return err
		}
	}
	return nil
}

func configureLinks(r *rtnl, states []LinkState, links []Link) error {
	if lo, ok := findLink(states, "lo"); ok {
		if err := r.setLink(lo, nil, 0); err != nil {
			return fmt.Errorf("setting lo up: %w", err)
		}
	}
	priority := firstPriority
	for i, l := range links {
		state, ok := findLink(states, l.Name)
		if !ok {
			return fmt.Errorf("configuring %s: the stack has no such interface, it has %s", l.Name, names(states))
		}
		if err := configureLink(r, state, l, firstMetric+i, &priority); err != nil {
			return &LinkError{Link: l.Name, Err: err}
		}
	}
	return nil
}

// LinkError says that an interface of the stack could not be configured.
type LinkError struct {
	Link string
	Err  error // what was being done, and what the stack said
}

// Error names the interface.
func (e *LinkError) Error() string { return fmt.Sprintf("configuring %s: %v", e.Link, e.Err) }

// Unwrap returns what went wrong.
func (e *LinkError) Unwrap() error { return e.Err }

func configureLink(r *rtnl, state LinkState, l Link, metric int, priority *int) error {
	if err := r.setLink(state, l.MAC, l.MTU); err != nil {
		return fmt.Errorf("setting it up%s: %w", wanted(l), err)
	}
	for _, p := range l.Addrs {
		if err := r.setAddress(state.Index, p); err != nil {
			return fmt.Errorf("adding address %v: %w", p, err)
		}
	}
	for _, gw := range []netip.Addr{l.GW4, l.GW6} {
		if !gw.IsValid() {
			continue
		}
		e := route{table: unix.RT_TABLE_MAIN, gw: gw, ifindex: state.Index, metric: metric, onlink: !onLink(l.Addrs, gw)}
		if err := r.setRoute(e); err != nil {
			return fmt.Errorf("adding the default route via %v: %w", gw, err)
		}
	}
	if l.Table == 0 {
		return nil
	}
	if err := fillTable(r, state, l); err != nil {
		return err
	}
	for _, p := range l.Addrs {
		if err := r.setRule(p.Addr(), l.Table, *priority); err != nil {
			return fmt.Errorf("adding the rule from %v to table %d: %w", p.Addr(), l.Table, err)
		}
		*priority++
	}
	return nil
}

// fillTable gives the link's own table what main has for it: without the
// networks of its addresses a neighbour would be reached through the gateway.
func fillTable(r *rtnl, state LinkState, l Link) error {
	for _, p := range l.Addrs {
		if p.IsSingleIP() {
			continue
		}
		e := route{table: l.Table, dst: p.Masked(), src: p.Addr(), ifindex: state.Index}
		if err := r.setRoute(e); err != nil {
			return fmt.Errorf("adding the route to %v to table %d: %w", p.Masked(), l.Table, err)
		}
	}
	for _, gw := range []netip.Addr{l.GW4, l.GW6} {
		if !gw.IsValid() {
			continue
		}
		e := route{table: l.Table, gw: gw, ifindex: state.Index, onlink: !onLink(l.Addrs, gw)}
		if err := r.setRoute(e); err != nil {
			return fmt.Errorf("adding the default route via %v to table %d: %w", gw, l.Table, err)
		}
	}
	return nil
}

// onLink says whether gw lies in the network of one of addrs. A link-local
// gateway is on any link.
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

// wanted names what was asked of a link, for messages.
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
