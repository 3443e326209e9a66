// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/pkg/config"
)

// tap fills in the properties of a tap that the host determines.
func (p *Plan) tap(l *Link, facts Facts) error {
	st := facts.Taps[l.Device]
	l.Create = !st.Exists
	if st.Exists && !st.Up {
		p.note("tap %s is down on the host, so %s will carry nothing: `ip link set %s up`", l.Device, l.Name, l.Device)
	}
	if mtu := facts.Bridges[l.Bridge]; mtu != 0 && l.Create && l.MTU == 0 {
		l.MTU = min(mtu, config.MaxMTU)
	}
	if !l.NAT {
		return nil
	}
	if !l.Create {
		return fmt.Errorf("nat: tap %s exists, and whoever made it decides where it leads; leave nat out, or choose another name", l.Device)
	}
	return l.nat(facts)
}

// nat assigns addresses to the stack and to the host's side of the tap, if they
// have none.
func (l *Link) nat(facts Facts) error {
	four := slices.IndexFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() })
	if four < 0 {
		net, err := freeNetwork(l.Device, facts.Routed)
		if err != nil {
			return err
		}
		l.GW4 = net.Addr().Next()
		l.Addrs = append(l.Addrs, netip.PrefixFrom(l.GW4.Next(), net.Bits()))
		four = len(l.Addrs) - 1
	}
	six := slices.IndexFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if six < 0 && facts.IPv6 && (l.MTU == 0 || l.MTU >= config.MinMTU6) {
		net := uniqueLocal(facts.Machine, l.Device)
		l.GW6 = net.Addr().Next()
		l.Addrs = append(l.Addrs, netip.PrefixFrom(l.GW6.Next(), net.Bits()))
		six = len(l.Addrs) - 1
	}
	for _, f := range []struct {
		n  int
		gw *netip.Addr
	}{{four, &l.GW4}, {six, &l.GW6}} {
		if f.n < 0 {
			continue
		}
		a := l.Addrs[f.n]
		if !f.gw.IsValid() {
			if *f.gw = a.Masked().Addr().Next(); *f.gw == a.Addr() {
				*f.gw = f.gw.Next()
			}
		}
		if !a.Contains(*f.gw) || a.Addr().Is4() && *f.gw == config.Broadcast(a) {
			return fmt.Errorf("nat: %s has no room for the host's address beside the stack's", a)
		}
		// A host route of the same or a longer prefix would be cut off.
		// A route with a shorter prefix contains the tap's network.
		if n := slices.IndexFunc(facts.Routed, func(r netip.Prefix) bool { return r.Bits() >= a.Bits() && a.Overlaps(r) }); n >= 0 {
			return fmt.Errorf("nat: the host has a route to %s already, within the tap's network %s; choose another with %s", facts.Routed[n], a.Masked(), ipKey(a))
		}
		l.HostAddrs = append(l.HostAddrs, netip.PrefixFrom(*f.gw, a.Bits()))
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
	return netip.Prefix{}, errors.New("nat: the host has routes to all of 10.200.0.0 to 10.231.255.255; choose a network with ip=ADDRESS/PREFIX")
}

// uniqueLocal returns a network of RFC 4193 that is almost certainly unique.
func uniqueLocal(machine, tap string) netip.Prefix {
	sum := sha256.Sum256([]byte("nat " + machine + " " + tap))
	a := [16]byte{0xfd}
	copy(a[1:8], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// tapStep describes the step for the tap on the host and its undo.
func tapStep(l *Link) (do, undo string) {
	do, undo = fmt.Sprintf("attach to tap %s as %s", l.Device, l.Name), "detach"
	if l.Queue {
		do = fmt.Sprintf("take a queue of tap %s as %s", l.Device, l.Name)
	}
	if l.Create {
		do, undo = fmt.Sprintf("create tap %s, mtu %d, up, as %s", l.Device, l.MTU, l.Name), "delete it"
	}
	if l.Create && l.Queue {
		do, undo = do+", with several queues", "detach; it goes with the last of those who share it"
	}
	if l.Bridge != "" {
		do += ", in bridge " + l.Bridge
		if !l.Create {
			undo += ", and take it out"
		}
	}
	if l.NAT {
		do += fmt.Sprintf("; give the host's side %s, turn forwarding on, masquerade", joined(l.HostAddrs, " and "))
		undo += ", the firewall's rules, and turn forwarding off if it was"
	}
	return do, undo
}

// lookTap gathers the facts for a tap.
func (f *Facts) lookTap(i *config.Interface) error {
	st, err := hostnet.CheckTap(i.Device, i.Multiqueue)
	if err != nil {
		return err
	}
	f.Taps[i.Device] = st
	ctx, cancel := lookLimit()
	defer cancel()
	if i.Bridge != "" {
		mtu, err := hostnet.CheckBridge(ctx, i.Bridge, i.Device, st.Exists)
		if err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
		f.Bridges[i.Bridge] = mtu
	}
	if !i.NAT {
		return nil
	}
	if err := hostnet.CheckNAT(ctx); err != nil {
		return fmt.Errorf("nat: %w", err)
	}
	f.IPv6 = routeIPv6()
	f.Routed, err = hostnet.Routed(ctx)
	return err
}
