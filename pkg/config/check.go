// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// KeyError is an error in one key of an interface.
type KeyError struct {
	Key string
	Err error
}

// Error names the key.
func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the error without the key.
func (e *KeyError) Unwrap() error { return e.Err }

// KeyErrorf returns an error in a key.
func KeyErrorf(key, format string, args ...any) *KeyError {
	return &KeyError{key, fmt.Errorf(format, args...)}
}

// check returns an error if the combination of keys is invalid.
func (i *Interface) check() *KeyError {
	t := findType(i.Type)
	for _, k := range interfaceKeys() {
		if len(k.get(i)) > 0 && !k.takenBy(t) {
			return &KeyError{k.name, k.refusal(t)}
		}
	}
	if err := i.checkGateways(t); err != nil {
		return err
	}
	if i.MTU != 0 && i.MTU < MinMTU6 && (len(i.IP6) > 0 || i.DHCP6 || i.SLAAC) {
		return KeyErrorf("mtu", "%d is too small for IPv6; expected at least %d", i.MTU, MinMTU6)
	}
	if t.Check != nil {
		if err := t.Check(i); err != nil {
			return err
		}
	}
	if err := i.checkRoutes(t); err != nil {
		return err
	}
	if i.Signal && i.Fullmesh {
		return KeyErrorf("fullmesh", "MPTCP does not support signal together with fullmesh; remove one")
	}
	return nil
}

// checkGateways checks each gateway against the addresses from which it must be
// reachable. If the host's device provides the address, the plan performs this
// check instead.
func (i *Interface) checkGateways(t *Type) *KeyError {
	if i.DHCP && i.GW.IsValid() {
		return KeyErrorf("gw", "DHCP sets the gateway; remove gw or dhcp")
	}
	if i.GW6.IsValid() && i.SLAAC {
		return KeyErrorf("gw6", "SLAAC sets the gateway; remove gw6 or slaac")
	}
	if t.AnyGateway {
		return nil
	}
	if !t.Lends || len(i.IP) > 0 {
		if err := checkGateway("gw", i.GW, "ip", i.IP); err != nil {
			return err
		}
	}
	if !t.Lends || len(i.IP6) > 0 {
		return checkGateway("gw6", i.GW6, "ip6", i.IP6)
	}
	return nil
}

// checkRoutes checks the gateways of static routes. If the interface gets its
// address later, the gateway only has to be a valid address.
func (i *Interface) checkRoutes(t *Type) *KeyError {
	if t.AnyGateway {
		return nil
	}
	for _, r := range i.Routes {
		ipKey, ips, later := "ip", i.IP, i.DHCP
		if r.Via.Is6() {
			ipKey, ips, later = "ip6", i.IP6, i.DHCP6 || i.SLAAC
		}
		if len(ips) == 0 && (later || t.Lends) {
			continue
		}
		if err := checkGateway("route", r.Via, ipKey, ips); err != nil {
			return err
		}
	}
	return nil
}

func checkGateway(key string, gw netip.Addr, ipKey string, ips []netip.Prefix) *KeyError {
	if !gw.IsValid() {
		return nil
	}
	anyLink := gw.Is6() && gw.IsLinkLocalUnicast()
	if len(ips) == 0 && !anyLink {
		return KeyErrorf(key, "%s requires an interface address; add %s=ADDRESS/PREFIX", gw, ipKey)
	}
	on := false
	for _, p := range ips {
		if p.Addr() == gw {
			return KeyErrorf(key, "%s is the interface's own address", gw)
		}
		if isNetworkOrBroadcast(gw, p) {
			return KeyErrorf(key, "%s is the network or broadcast address of %s; expected a router address in it", gw, p.Masked())
		}
		on = on || p.Contains(gw)
	}
	if !on && !anyLink {
		return KeyErrorf(key, "%s is not within %s", gw, joinPrefixes(ips))
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
	index int // index of the second interface
	text  string
}

// Error names the second interface.
func (e *InterfacesError) Error() string { return e.text }

// CheckInterfaces finds conflicts between interfaces.
func CheckInterfaces(all []Interface) *InterfacesError {
	owner := map[string]int{}
	claim := func(n int, thing string) *InterfacesError {
		if first, taken := owner[thing]; taken {
			return &InterfacesError{n, fmt.Sprintf("%q: %s is already used by eth%d", all[n].String(), thing, first)}
		}
		owner[thing] = n
		return nil
	}
	for second := range all {
		for first := range second {
			t := findType(all[second].Type)
			if all[first].Type != all[second].Type || t == nil || t.Conflict == nil {
				continue
			}
			if why := t.Conflict(all, first, second); why != "" {
				return &InterfacesError{second, fmt.Sprintf("%q: %s", all[second].String(), why)}
			}
		}
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

// exclusive reports whether the interface's device supports only one interface.
func (i *Interface) exclusive() bool {
	t := findType(i.Type)
	if t == nil || t.Exclusive == nil {
		return i.Arg() != ""
	}
	return t.Exclusive(i)
}
