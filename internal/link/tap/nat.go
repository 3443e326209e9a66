// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/pkg/config"
)

// nat assigns addresses to the stack and to the host's side of the tap, if none
// are configured.
func (p *Part) nat(l *link.Link, f *Facts, machine string) error {
	four := slices.IndexFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() })
	if four < 0 {
		net, err := freeNetwork(l.Device, f.Routed)
		if err != nil {
			return err
		}
		l.GW4 = net.Addr().Next()
		l.Addrs = append(l.Addrs, netip.PrefixFrom(l.GW4.Next(), net.Bits()))
		four = len(l.Addrs) - 1
	}
	six := slices.IndexFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if six < 0 && f.IPv6 && (l.MTU == 0 || l.MTU >= config.MinMTU6) {
		net := uniqueLocal(machine, l.Device)
		l.GW6 = net.Addr().Next()
		l.Addrs = append(l.Addrs, netip.PrefixFrom(l.GW6.Next(), net.Bits()))
		six = len(l.Addrs) - 1
	}
	for _, family := range []struct {
		n  int
		gw *netip.Addr
	}{{four, &l.GW4}, {six, &l.GW6}} {
		if family.n < 0 {
			continue
		}
		a := l.Addrs[family.n]
		if !family.gw.IsValid() {
			if *family.gw = a.Masked().Addr().Next(); *family.gw == a.Addr() {
				*family.gw = family.gw.Next()
			}
		}
		if !a.Contains(*family.gw) || a.Addr().Is4() && *family.gw == config.Broadcast(a) {
			return fmt.Errorf("nat: %s has room for only one address, and the host needs a second one", a)
		}
		// A host route with the same or a longer prefix would conflict
		// with the tap's network. A route with a shorter prefix does
		// not: the tap's network is a part of its destination.
		if n := slices.IndexFunc(f.Routed, func(r netip.Prefix) bool { return r.Bits() >= a.Bits() && a.Overlaps(r) }); n >= 0 {
			return fmt.Errorf("nat: the host already has a route to %s, which overlaps the tap's network %s; choose another network with %s", f.Routed[n], a.Masked(), ipKey(a))
		}
		p.HostAddrs = append(p.HostAddrs, netip.PrefixFrom(*family.gw, a.Bits()))
	}
	return nil
}

func ipKey(a netip.Prefix) string {
	if a.Addr().Is4() {
		return "ip="
	}
	return "ip6="
}

// freeNetwork returns a private network (RFC 1918) to which the host has no
// route. The search starts at a place that depends on the tap's name.
func freeNetwork(tap string, routed []netip.Prefix) (netip.Prefix, error) {
	const first, count = 200, 32 << 8 // 10.200.0.0 to 10.231.255.0
	sum := sha256.Sum256([]byte(tap))
	at := int(sum[0])<<8 | int(sum[1])
	for n := range count {
		k := (at + n) % count
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(first + k>>8), byte(k), 0}), 24)
		if !slices.ContainsFunc(routed, net.Overlaps) {
			return net, nil
		}
	}
	return netip.Prefix{}, errors.New("nat: the host already has routes to every network that lklrun tries (10.200.0.0 to 10.231.255.255); choose a network with ip=ADDRESS/PREFIX")
}

// uniqueLocal returns a network of RFC 4193 that is almost certainly unique.
func uniqueLocal(machine, tap string) netip.Prefix {
	sum := sha256.Sum256([]byte("nat " + machine + " " + tap))
	a := [16]byte{0xfd}
	copy(a[1:8], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}
