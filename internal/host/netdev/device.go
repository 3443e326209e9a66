// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DeviceState describes a network device of the host.
type DeviceState struct {
	Ifindex int
	Type    uint16 // unix.ARPHRD_*
	MTU     int
	MAC     [6]byte // of an Ethernet device
	Up      bool    // up and with carrier
	Addrs   []netip.Prefix
	Lent    []netip.Prefix // the members of Addrs that a stack uses if no addresses are configured
	GW4     netip.Addr     // of its default routes
	GW6     netip.Addr
}

// Has reports whether a is an address of the device.
func (d *DeviceState) Has(a netip.Addr) bool {
	for _, p := range d.Addrs {
		if p.Addr() == a {
			return true
		}
	}
	return false
}

// LookDevice inspects the device called name in the current network namespace.
func LookDevice(name string) (DeviceState, error) {
	l, err := find(name)
	if errors.Is(err, errNoDevice) {
		return DeviceState{}, fmt.Errorf("the host has no device %s; `ip link` lists its devices", name)
	}
	if err != nil {
		return DeviceState{}, fmt.Errorf("looking for device %s: %w", name, err)
	}
	const running = unix.IFF_UP | unix.IFF_RUNNING
	d := DeviceState{Ifindex: l.Attrs().Index, MTU: l.Attrs().MTU, Up: l.Attrs().RawFlags&running == running}
	if mac := l.Attrs().HardwareAddr; len(mac) == len(d.MAC) {
		copy(d.MAC[:], mac)
	}
	if d.Type, err = linkType(name); err != nil {
		return d, fmt.Errorf("inspecting device %s: %w", name, err)
	}
	if err := d.lookAddrs(); err != nil {
		return d, fmt.Errorf("listing the addresses of device %s: %w", name, err)
	}
	if err := d.lookGateways(); err != nil {
		return d, fmt.Errorf("listing the routes of device %s: %w", name, err)
	}
	return d, nil
}

// noLending are the flags of addresses that are temporary, or not usable yet
// (linux/if_addr.h).
const noLending = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// lookAddrs reads the device's addresses, without the peer address of a
// point-to-point device. Lent receives the first permanent address of each
// family.
func (d *DeviceState) lookAddrs() error {
	all, err := list(func() ([]netlink.Addr, error) { return netlink.AddrList(device(d.Ifindex), netlink.FAMILY_ALL) })
	lent := map[bool]bool{}
	for _, known := range all {
		p := prefix(known.IPNet)
		if !p.IsValid() {
			continue // of a family other than IP
		}
		d.Addrs = append(d.Addrs, p)
		if a := p.Addr(); a.IsGlobalUnicast() && known.Flags&noLending == 0 && !lent[a.Is6()] {
			lent[a.Is6()] = true
			d.Lent = append(d.Lent, p)
		}
	}
	return err
}

// linkType returns the type of a device, unix.ARPHRD_*.
func linkType(name string) (uint16, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(fd, unix.SIOCGIFHWADDR, req)
	return req.Uint16(), err // sa_family of its hardware address
}

// lookGateways reads the gateways of the device's default routes. It uses the
// main table's route that the host prefers. If the main table has no default
// route, it searches the other tables in the same way, because Android has one
// table for each network.
func (d *DeviceState) lookGateways() error {
	all, err := routes()
	best := map[bool]uint64{}
	for _, r := range all {
		if prefix(r.Dst).Bits() != 0 || r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST || r.LinkIndex != d.Ifindex {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Gw)
		if !ok {
			continue
		}
		metric := uint64(uint32(r.Priority))
		if r.Table != unix.RT_TABLE_MAIN {
			metric |= 1 << 32 // after all routes of the main table
		}
		if old, known := best[a.Is6()]; known && old <= metric {
			continue
		}
		best[a.Is6()] = metric
		if a.Is6() {
			d.GW6 = a
		} else {
			d.GW4 = a
		}
	}
	return err
}
