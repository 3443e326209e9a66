// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

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
	Lent    []netip.Prefix // of these, the ones a stack uses if none are configured
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
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Err.Error() == "no such network interface" {
			return DeviceState{}, fmt.Errorf("the host has no device %s: `ip link` lists what there is", name)
		}
		return DeviceState{}, fmt.Errorf("looking for device %s: %w", name, err)
	}
	d := DeviceState{
		Ifindex: ifi.Index, MTU: ifi.MTU,
		Up: ifi.Flags&net.FlagUp != 0 && ifi.Flags&net.FlagRunning != 0,
	}
	if len(ifi.HardwareAddr) == len(d.MAC) {
		copy(d.MAC[:], ifi.HardwareAddr)
	}
	known, err := lookDevice(context.Background(), name)
	if err != nil {
		return d, err
	}
	d.Type = known.Type
	if err := d.lookAddrs(); err != nil {
		return d, fmt.Errorf("looking at the addresses of device %s: %w", name, err)
	}
	if err := d.lookGateways(); err != nil {
		return d, fmt.Errorf("looking at the routes of device %s: %w", name, err)
	}
	return d, nil
}

// noLending are the flags of addresses that are temporary, or not usable yet
// (linux/if_addr.h).
const noLending = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// lookAddrs reads the device's addresses, without the peer address of a
// point-to-point device. It lends the first permanent address of each family.
func (d *DeviceState) lookAddrs() error {
	lent := map[bool]bool{}
	return dump(context.Background(), unix.RTM_GETADDR, unix.SizeofIfAddrmsg, func(body []byte, attrs map[uint16][]byte) {
		// struct ifaddrmsg, linux/if_addr.h
		if int(binary.NativeEndian.Uint32(body[4:])) != d.Ifindex {
			return
		}
		flags := uint32(body[2])
		if f := attrs[unix.IFA_FLAGS]; len(f) == 4 {
			flags = binary.NativeEndian.Uint32(f)
		}
		raw := attrs[unix.IFA_LOCAL]
		if raw == nil {
			raw = attrs[unix.IFA_ADDRESS]
		}
		a, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		p := netip.PrefixFrom(a, int(body[1]))
		d.Addrs = append(d.Addrs, p)
		if a.IsGlobalUnicast() && flags&noLending == 0 && !lent[a.Is6()] {
			lent[a.Is6()] = true
			d.Lent = append(d.Lent, p)
		}
	})
}

// lookGateways reads the gateways of the device's default routes. In the main
// table it takes the route that the host prefers. If there is none, it does the
// same for other tables, because Android has one table for each network.
func (d *DeviceState) lookGateways() error {
	best := map[bool]uint64{}
	return dump(context.Background(), unix.RTM_GETROUTE, unix.SizeofRtMsg, func(body []byte, attrs map[uint16][]byte) {
		// struct rtmsg, linux/rtnetlink.h
		if body[1] != 0 || body[4] == unix.RT_TABLE_LOCAL || body[7] != unix.RTN_UNICAST {
			return
		}
		oif, gw := attrs[unix.RTA_OIF], attrs[unix.RTA_GATEWAY]
		if len(oif) != 4 || int(binary.NativeEndian.Uint32(oif)) != d.Ifindex {
			return
		}
		a, ok := netip.AddrFromSlice(gw)
		if !ok {
			return
		}
		var metric uint64
		if m := attrs[unix.RTA_PRIORITY]; len(m) == 4 {
			metric = uint64(binary.NativeEndian.Uint32(m))
		}
		if body[4] != unix.RT_TABLE_MAIN {
			metric |= 1 << 32 // after all routes of the main table
		}
		if old, known := best[a.Is6()]; known && old <= metric {
			return
		}
		best[a.Is6()] = metric
		if a.Is6() {
			d.GW6 = a
		} else {
			d.GW4 = a
		}
	})
}
