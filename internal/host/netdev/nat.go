// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/guard"
)

// OpNAT ends the NAT of a tap. New lists the changes to the host's forwarding.
const OpNAT = "nat"

// natAlias is the prefix of the alias (IFLA_IFALIAS) of each tap with NAT. The
// changes to the host's forwarding follow it. A new run inherits these changes,
// and the last one to end restores them.
const natAlias = "lklrun nat "

// CheckNAT returns an error if a new tap cannot have NAT.
func CheckNAT(ctx context.Context) error {
	if !Capable(unix.CAP_NET_ADMIN) {
		return rightsErrorf("CAP_NET_ADMIN is required; run lklrun as root, or use --if user")
	}
	if err := checkForwarding(); err != nil {
		return err
	}
	if err := guard.CheckNAT(ctx); err != nil {
		return fmt.Errorf("the host can masquerade with neither nftables nor iptables (%w); use --if user", err)
	}
	return nil
}

// UseTun sets up a tun device that this process has opened, and returns it as the
// host's side for NAT. The device disappears with its descriptor.
func UseTun(name string, addrs []netip.Prefix) (*Tap, error) {
	d, err := find(name)
	if err != nil {
		return nil, fmt.Errorf("looking for device %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(d); err != nil {
		return nil, fmt.Errorf("setting %s up: %w", name, err)
	}
	for _, a := range addrs {
		if err := addAddress(d, a); err != nil {
			return nil, fmt.Errorf("%s: adding the address %v: %w", name, a, err)
		}
	}
	return &Tap{Name: name, Ifindex: d.Attrs().Index, Created: true, Up: true}, nil
}

// NAT assigns addrs to the host's side of the tap, and masquerades packets from
// the networks of these addresses. The function earlier lists the undos of
// other runs, including killed ones. NAT passes the undo to journal before it
// makes the change.
func (t *Tap) NAT(ctx context.Context, addrs []netip.Prefix, earlier func() ([]Undo, error), journal func(Undo) error) error {
	unlock, err := guard.Lock(ctx)
	if err != nil {
		return fmt.Errorf("nat of %s: %w", t.Name, err)
	}
	defer unlock()
	six := false
	for _, a := range addrs {
		six = six || a.Addr().Is6()
	}
	f, err := neededForwarding(six)
	if err != nil {
		return err
	}
	others, err := otherNATs(t.Ifindex)
	if err != nil {
		return err
	}
	undos, err := earlier()
	if err != nil {
		return err
	}
	for _, u := range undos {
		o, err := parseForwarding(u.New)
		if err != nil {
			return err
		}
		others = append(others, o)
	}
	for _, o := range others {
		f.inherit(o)
	}
	if err := journal(Undo{Op: OpNAT, Name: t.Name, Ifindex: t.Ifindex, Netns: netnsID(), New: f.String()}); err != nil {
		return err
	}
	d := device(t.Ifindex)
	if err := errors.Join(netlink.LinkSetAlias(d, natAlias+f.String()), netlink.LinkSetGroup(d, guard.NATGroup)); err != nil {
		return fmt.Errorf("marking %s: %w", t.Name, err)
	}
	for _, a := range addrs {
		if err := addAddress(d, a); err != nil {
			return fmt.Errorf("%s: adding the address %v: %w", t.Name, a, err)
		}
	}
	// Install the rules before forwarding is enabled, so that no packet
	// bypasses them.
	g := guard.NAT{Tap: t.Name, Nets: addrs, Only4: f.Four, Only6: f.Six, Open: f.On4}
	if err := g.Apply(ctx); err != nil {
		return fmt.Errorf("nat of %s: %w", t.Name, err)
	}
	if err := f.enable(); err != nil {
		return fmt.Errorf("nat of %s: %w", t.Name, err)
	}
	return nil
}

func undoNAT(ctx context.Context, u Undo) error {
	f, err := parseForwarding(u.New)
	if err != nil {
		return err
	}
	unlock, err := guard.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	g := guard.NAT{Tap: u.Name}
	// A device of this name that belongs to another run has its own rules.
	if ifi, err := net.InterfaceByName(u.Name); err == nil && ifi.Index != u.Ifindex {
		return nil
	}
	others, err := otherNATs(u.Ifindex)
	if err == nil && len(others) == 0 {
		err = f.restore()
	}
	if err != nil {
		return err // keep the rules as long as the host forwards
	}
	return g.Remove(ctx)
}

// otherNATs reads the changes recorded at other taps with NAT.
func otherNATs(except int) ([]forwarding, error) {
	devices, err := list(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing the host's devices: %w", err)
	}
	var all []forwarding
	for _, d := range devices {
		text, ours := strings.CutPrefix(d.Attrs().Alias, natAlias)
		if !ours || d.Attrs().Index == except {
			continue
		}
		if f, err := parseForwarding(text); err == nil { // ignore an alias that we did not write
			all = append(all, f)
		}
	}
	return all, nil
}

// addAddress is the equivalent of `ip addr add`, without a broadcast address.
func addAddress(d netlink.Link, a netip.Prefix) error {
	n := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
	return netlink.AddrAdd(d, &netlink.Addr{IPNet: n, Flags: unix.IFA_F_NODAD, Broadcast: net.IPv4zero})
}

// RoutesIPv6 reports whether the host has a route to the IPv6 internet
// (2000::/3). It connects a datagram socket, which looks up a route and sends
// nothing.
func RoutesIPv6() bool {
	c, err := net.DialUDP("udp6", nil, &net.UDPAddr{IP: net.ParseIP("2000::1"), Port: 9})
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Routed lists the networks that the host has routes to, without default
// routes.
func Routed() ([]netip.Prefix, error) {
	known, err := routes()
	if err != nil {
		return nil, fmt.Errorf("listing the host's routes: %w", err)
	}
	var all []netip.Prefix
	for _, r := range known {
		if p := prefix(r.Dst); p.Bits() > 0 {
			all = append(all, p)
		}
	}
	return all, nil
}
