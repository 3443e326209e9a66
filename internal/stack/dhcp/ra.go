// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// mostHeard is the maximum number of routers whose name servers are kept.
const mostHeard = 8

// address stores the addresses that the stack derived from router
// advertisements.
func (c *Client) address(a *stacknet.AddressNews) {
	addr := a.Prefix.Addr()
	if addr.IsLinkLocalUnicast() {
		return
	}
	const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_PERMANENT
	made := !a.Gone && a.Flags&unusable == 0 && !(c.v6 != nil && c.v6.owns(addr))
	c.mu.Lock()
	if _, had := c.slaac[addr]; had == made {
		c.mu.Unlock()
		return
	}
	if made {
		c.slaac[addr] = a.Prefix
	} else {
		delete(c.slaac, addr)
	}
	state := StateWaiting
	if len(c.slaac) > 0 {
		state = StateBound
	}
	for n := range c.statuses {
		if c.statuses[n].Proto == ProtoRA {
			c.statuses[n].State = state
		}
	}
	c.change()
}

// nameServers stores the name servers and search domains announced by routers.
// A lifetime of zero withdraws them (RFC 8106, 5.1).
func (c *Client) nameServers(all []stacknet.NameServers) {
	c.mu.Lock()
	before := slices.Clone(c.rdnss)
	now := time.Now()
	for _, s := range all {
		s.Domains = sensibleDomains(s.Domains)
		s.Servers = slices.DeleteFunc(s.Servers, func(a netip.Addr) bool { return !usable(a) })
		kind := func(h rdnssEntry) bool { return h.Router == s.Router && (len(h.Servers) > 0) == (len(s.Servers) > 0) }
		c.rdnss = slices.DeleteFunc(c.rdnss, kind)
		if s.Lifetime <= 0 || len(s.Servers) == 0 && len(s.Domains) == 0 || len(c.rdnss) >= mostHeard {
			continue
		}
		h := rdnssEntry{NameServers: s}
		if s.Lifetime != stacknet.Forever {
			h.until = now.Add(s.Lifetime)
		}
		c.rdnss = append(c.rdnss, h)
	}
	c.forget(before)
}

// forget removes expired entries, and signals a change if the rest differs from
// before. It schedules itself for the next expiry. The caller holds c.mu, and
// forget unlocks it.
func (c *Client) forget(before []rdnssEntry) {
	now := time.Now()
	var next time.Time
	c.rdnss = slices.DeleteFunc(c.rdnss, func(h rdnssEntry) bool { return !h.until.IsZero() && !now.Before(h.until) })
	for _, h := range c.rdnss {
		if !h.until.IsZero() && (next.IsZero() || h.until.Before(next)) {
			next = h.until
		}
	}
	if c.forgetting != nil {
		c.forgetting.Stop()
	}
	if !next.IsZero() {
		c.forgetting = time.AfterFunc(next.Sub(now), func() {
			c.mu.Lock()
			c.forget(slices.Clone(c.rdnss))
		})
	}
	same := func(a, b rdnssEntry) bool {
		return slices.Equal(a.Servers, b.Servers) && slices.Equal(a.Domains, b.Domains)
	}
	if slices.EqualFunc(before, c.rdnss, same) {
		c.mu.Unlock()
		return
	}
	c.change()
}
