// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// rtnlLimit is the timeout for an answer of the host's rtnetlink.
const rtnlLimit = 5 * time.Second

var _ = netlink.SetSocketTimeout(rtnlLimit)

// lookDevice inspects the device called name in the current network namespace.
func lookDevice(name string) (netlink.Link, error) {
	d, err := find(name)
	if errors.Is(err, errNoDevice) {
		return nil, fmt.Errorf("the host has no device %s; `ip link` lists its devices", name)
	}
	if err != nil {
		return nil, fmt.Errorf("inspecting device %s: %w", name, err)
	}
	return d, nil
}

var errNoDevice = errors.New("no such device")

// find returns the device called name, or errNoDevice. The kernel also finds
// devices by their alternative names, but firewall rules do not match these.
func find(name string) (netlink.Link, error) {
	d, err := netlink.LinkByName(name)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) || err == nil && d.Attrs().Name != name {
		return nil, errNoDevice
	}
	return d, err
}

// device refers to the device with that index.
func device(ifindex int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
}

// listTries is the number of attempts to list objects of the host that can
// change in the meantime.
const listTries = 5

// list calls f again if a change made its list inconsistent. After the last
// attempt it returns even an inconsistent list.
func list[T any](f func() ([]T, error)) (all []T, err error) {
	for range listTries {
		if all, err = f(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}

// routes lists the IP routes of all tables.
func routes() (all []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := list(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, routes...)
	}
	return all, nil
}

// prefix converts an address with its mask.
func prefix(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a, bits)
}
