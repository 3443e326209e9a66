// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// keyError describes an error of an interface, and names its key.
type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return e.key + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

func keyErrorf(key, format string, args ...any) *keyError {
	return &keyError{key, fmt.Errorf(format, args...)}
}

// check finds errors in the combination of keys.
func (i *Interface) check() *keyError {
	for n := range interfaceKeys {
		k := &interfaceKeys[n]
		if len(k.get(i)) > 0 && !k.takes(i.Type) {
			why := k.why
			if i.Type == TypeUser && why == ethernet {
				why = notUser
			}
			return keyErrorf(k.name, "%s", why)
		}
	}
	if err := i.checkGateways(); err != nil {
		return err
	}
	if i.MTU != 0 && i.MTU < MinMTU6 && (len(i.IP6) > 0 || i.DHCP6 || i.SLAAC) {
		return keyErrorf("mtu", "%d is too small for IPv6; expected %d or more", i.MTU, MinMTU6)
	}
	switch i.Type {
	case TypeUser:
		switch {
		case len(i.IP6) > 0 || i.GW6.IsValid():
			return keyErrorf("ip6", "the user-mode gateway gives the interface its IPv6 address itself, where the host has IPv6; leave it out")
		case len(i.IP) > 1:
			return keyErrorf("ip", "the user-mode gateway serves one address")
		case len(i.IP) == 1 && (i.IP[0].Bits() > 29 || i.IP[0].Bits() < 8):
			return keyErrorf("ip", "%s leaves no room for the gateway's addresses; expected a prefix length from 8 to 29", i.IP[0])
		}
	case TypeTap:
		switch {
		case i.NAT && i.Bridge != "":
			return keyErrorf("nat", "a bridged tap has its network's addresses and needs none; leave out nat or bridge")
		case i.NAT && (i.DHCP || i.DHCP6 || i.SLAAC):
			return keyErrorf("nat", "gives the interface its addresses itself; leave out dhcp, dhcp6 and slaac")
		case i.NAT && i.VLAN > 0:
			return keyErrorf("nat", "the host's side of the tap is in no VLAN; leave out nat or vlan")
		case i.Multiqueue && i.MAC.IsZero():
			return keyErrorf("multiqueue", "all who share the tap need one Ethernet address; add mac=, the same for each")
		case i.Multiqueue && (i.DHCP || i.DHCP6 || i.SLAAC):
			return keyErrorf("multiqueue", "what the network answers would reach one of those who share the tap; leave out dhcp, dhcp6 and slaac")
		case i.Multiqueue && (i.NAT || i.Bridge != ""):
			return keyErrorf("multiqueue", "whoever ends first would take it from the others; leave out nat and bridge, and set them up beforehand")
		}
	case TypeMacvtap:
		if i.Mode != "" && macvtapPath(i.Device) {
			return keyErrorf("mode", "%s exists and has its mode; leave it out", i.Device)
		}
	}
	if i.Signal && i.Fullmesh {
		return keyErrorf("fullmesh", "the kernel has no endpoint with both signal and fullmesh; leave one out")
	}
	return nil
}

// checkGateways checks each gateway against the addresses from which it must be
// reachable. If the host's device provides the address, the plan does this
// check.
func (i *Interface) checkGateways() *keyError {
	if i.DHCP && i.GW.IsValid() {
		return keyErrorf("gw", "the DHCP server says which it is; leave out gw or dhcp")
	}
	if i.GW6.IsValid() && i.SLAAC {
		return keyErrorf("gw6", "the routers say which it is; leave out gw6 or slaac")
	}
	if i.Type == TypeRawIP {
		return nil // the other end of the link accepts all packets
	}
	if i.Type != TypeRaw || len(i.IP) > 0 {
		if err := checkGateway("gw", i.GW, "ip", i.IP); err != nil {
			return err
		}
	}
	if i.Type != TypeRaw || len(i.IP6) > 0 {
		return checkGateway("gw6", i.GW6, "ip6", i.IP6)
	}
	return nil
}

func checkGateway(key string, gw netip.Addr, ipKey string, ips []netip.Prefix) *keyError {
	if !gw.IsValid() {
		return nil
	}
	anyLink := gw.Is6() && gw.IsLinkLocalUnicast()
	if len(ips) == 0 && !anyLink {
		return keyErrorf(key, "%s needs an address of the interface beside it; expected %s=ADDRESS/PREFIX", gw, ipKey)
	}
	on := false
	for _, p := range ips {
		if p.Addr() == gw {
			return keyErrorf(key, "%s is the interface's own address", gw)
		}
		if notAHost(gw, p) {
			return keyErrorf(key, "%s is the network or broadcast address of %s; expected the address of a router in it", gw, p.Masked())
		}
		on = on || p.Contains(gw)
	}
	if !on && !anyLink {
		return keyErrorf(key, "%s is not within %s", gw, joinPrefixes(ips))
	}
	return nil
}

func joinPrefixes(ips []netip.Prefix) string {
	s := make([]string, len(ips))
	for n, p := range ips {
		s[n] = p.Masked().String()
	}
	return strings.Join(s, " or ")
}

// InterfacesError reports a conflict between two interfaces.
type InterfacesError struct {
	index int // of the second
	text  string
}

// Error names the second interface.
func (e *InterfacesError) Error() string { return e.text }

// CheckInterfaces finds conflicts between interfaces.
func CheckInterfaces(all []Interface) *InterfacesError {
	owner := map[string]int{}
	claim := func(n int, thing string) *InterfacesError {
		if first, taken := owner[thing]; taken {
			return &InterfacesError{n, fmt.Sprintf("%q: %s is that of eth%d already", all[n].String(), thing, first)}
		}
		owner[thing] = n
		return nil
	}
	if err := checkPassthru(all); err != nil {
		return err
	}
	for n := range all {
		if all[n].Table == 0 {
			owner["table "+strconv.Itoa(FirstTable+n)] = n
		}
	}
	for n := range all {
		i := &all[n]
		var things []string
		if i.exclusive() {
			things = append(things, i.Target())
		}
		for _, p := range i.IP {
			things = append(things, "address "+p.Addr().String())
		}
		for _, p := range i.IP6 {
			things = append(things, "address "+p.Addr().String())
		}
		if !i.MAC.IsZero() {
			things = append(things, "mac "+i.MAC.String())
		}
		if i.Table != 0 {
			things = append(things, "table "+strconv.Itoa(i.Table))
		}
		for _, t := range things {
			if err := claim(n, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPassthru finds a macvtap beside one in mode passthru, which needs its
// device exclusively.
func checkPassthru(all []Interface) *InterfacesError {
	first := map[string]int{}
	for n := range all {
		i := &all[n]
		if i.Type != TypeMacvtap || macvtapPath(i.Device) {
			continue
		}
		before, more := first[i.Device]
		if !more {
			first[i.Device] = n
			continue
		}
		for _, m := range []int{before, n} {
			if all[m].Mode == ModePassthru {
				return &InterfacesError{n, fmt.Sprintf("%q: %s has two macvtaps, and one in mode passthru has it alone (eth%d); choose mode=bridge for all", i.String(), i.Device, m)}
			}
		}
	}
	return nil
}

// exclusive reports whether the interface's device supports only one interface.
// In contrast, a device can have many macvtaps, and each user-mode gateway is
// separate.
func (i *Interface) exclusive() bool {
	switch i.Type {
	case TypeUser:
		return false
	case TypeMacvtap:
		return macvtapPath(i.Device)
	}
	return true
}
