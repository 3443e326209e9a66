// SPDX-License-Identifier: Apache-2.0

// Package config holds what a user can say about a run (interfaces, sysctls,
// sizes) as plain data, and turns the command line's spelling of it into that
// data. Errors are one line that names the part at fault and what was expected
// in its place.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Types of an interface.
const (
	TypeUser = "user" // the user-mode gateway
	TypeTap  = "tap"  // a tap device of the host
	TypeFD   = "fd"   // an inherited frame socket or tap descriptor
)

// Limits of an MTU. The lower one is IPv4's (RFC 791), IPv6 wants 1280
// (RFC 8200); the upper one leaves room for an Ethernet header in a message of
// 64 KiB.
const (
	MinMTU  = 68
	MinMTU6 = 1280
	MaxMTU  = 65520
)

// MAC is an Ethernet address; the zero value stands for none given.
type MAC [6]byte

// IsZero tells whether no address is given.
func (m MAC) IsZero() bool { return m == MAC{} }

// String writes the address as xx:xx:xx:xx:xx:xx.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText writes the address as String does, and none as nothing.
func (m MAC) MarshalText() ([]byte, error) {
	if m.IsZero() {
		return nil, nil
	}
	return []byte(m.String()), nil
}

// Interface is one interface of the stack and what it hangs on. It becomes
// eth0, eth1, ... in the order given.
type Interface struct {
	Type   string         `json:"type"`
	Device string         `json:"device,omitempty"` // tap: its name on the host
	FD     int            `json:"fd,omitempty"`     // fd: the descriptor's number
	IP     []netip.Prefix `json:"ip,omitempty"`
	IP6    []netip.Prefix `json:"ip6,omitempty"`
	GW     netip.Addr     `json:"gw,omitzero"`
	GW6    netip.Addr     `json:"gw6,omitzero"`
	MAC    MAC            `json:"mac,omitzero"`
	MTU    int            `json:"mtu,omitempty"` // 0: the type's default
}

// keys that an interface takes, as the error for an unknown one lists them.
var interfaceKeys = []string{"ip", "ip6", "gw", "gw6", "mac", "mtu"}

const interfaceTypes = "user, tap:NAME or fd:N"

// Target is the TYPE:ARG part of the specification.
func (i *Interface) Target() string {
	switch i.Type {
	case TypeTap:
		return i.Type + ":" + i.Device
	case TypeFD:
		return i.Type + ":" + strconv.Itoa(i.FD)
	}
	return i.Type
}

// String writes the specification that ParseInterface reads.
func (i *Interface) String() string {
	var b strings.Builder
	b.WriteString(i.Target())
	for _, p := range i.IP {
		fmt.Fprintf(&b, ",ip=%s", p)
	}
	for _, p := range i.IP6 {
		fmt.Fprintf(&b, ",ip6=%s", p)
	}
	if i.GW.IsValid() {
		fmt.Fprintf(&b, ",gw=%s", i.GW)
	}
	if i.GW6.IsValid() {
		fmt.Fprintf(&b, ",gw6=%s", i.GW6)
	}
	if !i.MAC.IsZero() {
		fmt.Fprintf(&b, ",mac=%s", i.MAC)
	}
	if i.MTU != 0 {
		fmt.Fprintf(&b, ",mtu=%d", i.MTU)
	}
	return b.String()
}

// ParseInterface reads TYPE[:ARG][,KEY=VALUE]... The error names the
// specification and the part that is wrong.
func ParseInterface(spec string) (Interface, error) {
	i, err := parseInterface(spec)
	if err != nil {
		return Interface{}, fmt.Errorf("%q: %w", spec, err)
	}
	return i, nil
}

func parseInterface(spec string) (Interface, error) {
	parts := strings.Split(spec, ",")
	var i Interface
	if err := i.setTarget(parts[0]); err != nil {
		return i, err
	}
	seen := map[string]bool{}
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !slices.Contains(interfaceKeys, key):
			return i, fmt.Errorf("%q: unknown key; known are %s", key, strings.Join(interfaceKeys, ", "))
		case !ok || value == "":
			return i, fmt.Errorf("%s: no value; expected %s=...", key, key)
		case seen[key] && key != "ip" && key != "ip6":
			return i, fmt.Errorf("%s: given twice", key)
		}
		seen[key] = true
		if err := i.set(key, value); err != nil {
			return i, fmt.Errorf("%s: %w", key, err)
		}
	}
	return i, i.check()
}

func (i *Interface) setTarget(s string) error {
	typ, arg, hasArg := strings.Cut(s, ":")
	i.Type = typ
	switch typ {
	case TypeUser:
		if hasArg {
			return fmt.Errorf("user: takes no %q; expected user[,KEY=VALUE]", ":"+arg)
		}
	case TypeTap:
		if err := checkDevice(arg); err != nil {
			return fmt.Errorf("tap: %w; expected tap:NAME", err)
		}
		i.Device = arg
	case TypeFD:
		n, err := strconv.ParseUint(arg, 10, 31)
		if err != nil || n < 3 {
			return fmt.Errorf("fd: %q; expected the number of an open descriptor, 3 or above", arg)
		}
		i.FD = int(n)
	case "":
		return errors.New("no interface type; expected " + interfaceTypes)
	default:
		return fmt.Errorf("%q: unknown interface type; expected %s", typ, interfaceTypes)
	}
	return nil
}

// checkDevice applies the kernel's rules for the name of a network device
// (dev_valid_name(), net/core/dev.c), and two more: '%' would be a pattern, and
// what is not plain ASCII could not be shown.
func checkDevice(name string) error {
	switch {
	case name == "":
		return errors.New("no device name")
	case len(name) > 15: // IFNAMSIZ - 1
		return fmt.Errorf("device name %q is longer than 15 characters", name)
	case name == "." || name == ".." || strings.ContainsAny(name, "/:%") ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%q cannot be a device name", name)
	}
	return nil
}

func (i *Interface) set(key, value string) error {
	switch key {
	case "ip":
		return addPrefix(&i.IP, value, false)
	case "ip6":
		return addPrefix(&i.IP6, value, true)
	case "gw":
		return setGateway(&i.GW, value, false)
	case "gw6":
		return setGateway(&i.GW6, value, true)
	case "mac":
		m, err := net.ParseMAC(value)
		if err != nil || len(m) != len(i.MAC) {
			return fmt.Errorf("%q is not an Ethernet address; expected xx:xx:xx:xx:xx:xx", value)
		}
		i.MAC = MAC(m)
		if i.MAC[0]&1 != 0 || i.MAC.IsZero() {
			return fmt.Errorf("%s is a group or zero address; an interface needs a unicast one, such as 02:00:00:00:00:01", i.MAC)
		}
	case "mtu":
		n, err := strconv.Atoi(value)
		if err != nil || n < MinMTU || n > MaxMTU {
			return fmt.Errorf("%q; expected a number from %d to %d", value, MinMTU, MaxMTU)
		}
		i.MTU = n
	}
	return nil
}

func addPrefix(list *[]netip.Prefix, value string, six bool) error {
	family, example := "IPv4", "192.0.2.1/24"
	if six {
		family, example = "IPv6", "2001:db8::1/64"
	}
	p, err := netip.ParsePrefix(value)
	if err != nil {
		if a, aerr := netip.ParseAddr(value); aerr == nil && a.Is6() == six {
			return fmt.Errorf("%q has no prefix length; expected ADDRESS/PREFIX, such as %s", value, example)
		}
		return fmt.Errorf("%q is not an %s address with its prefix length; expected ADDRESS/PREFIX, such as %s", value, family, example)
	}
	a := p.Addr()
	switch {
	case a.Is6() != six:
		other := "ip"
		if !six {
			other = "ip6"
		}
		return fmt.Errorf("%q is not an %s address; use %s= for it", value, family, other)
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6():
		return fmt.Errorf("%s cannot be the address of an interface", a)
	case notAHost(a, p):
		return fmt.Errorf("%s is the network or broadcast address of %s; expected the address of a host in it", a, p.Masked())
	}
	for _, other := range *list {
		if other.Addr() == a {
			return fmt.Errorf("%s: given twice", a)
		}
	}
	*list = append(*list, p)
	return nil
}

// notAHost tells whether a is the network or broadcast address of an IPv4
// prefix; one of 31 bits has none (RFC 3021).
func notAHost(a netip.Addr, p netip.Prefix) bool {
	return a.Is4() && p.Addr().Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == Broadcast(p))
}

// Broadcast is the last address of an IPv4 prefix.
func Broadcast(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(b)
}

func setGateway(gw *netip.Addr, value string, six bool) error {
	a, err := netip.ParseAddr(value)
	if err != nil || a.Is6() != six || a.Zone() != "" || a.Is4In6() {
		if six {
			return fmt.Errorf("%q is not an IPv6 address", value)
		}
		return fmt.Errorf("%q is not an IPv4 address", value)
	}
	if a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
		return fmt.Errorf("%s cannot be a gateway", a)
	}
	*gw = a
	return nil
}

// check looks at what only the parts together can get wrong.
func (i *Interface) check() error {
	if err := checkGateway("gw", i.GW, "ip", i.IP); err != nil {
		return err
	}
	if err := checkGateway("gw6", i.GW6, "ip6", i.IP6); err != nil {
		return err
	}
	if i.MTU != 0 && i.MTU < MinMTU6 && len(i.IP6) > 0 {
		return fmt.Errorf("mtu: %d is too small for IPv6; expected %d or more", i.MTU, MinMTU6)
	}
	if i.Type == TypeUser {
		switch {
		case len(i.IP6) > 0 || i.GW6.IsValid():
			return errors.New("ip6: the user-mode gateway gives the interface its IPv6 address itself, where the host has IPv6; leave it out")
		case len(i.IP) > 1:
			return errors.New("ip: the user-mode gateway serves one address")
		case len(i.IP) == 1 && (i.IP[0].Bits() > 29 || i.IP[0].Bits() < 8):
			return fmt.Errorf("ip: %s leaves no room for the gateway's addresses; expected a prefix length from 8 to 29", i.IP[0])
		}
	}
	return nil
}

func checkGateway(key string, gw netip.Addr, ipKey string, ips []netip.Prefix) error {
	if !gw.IsValid() {
		return nil
	}
	anyLink := gw.Is6() && gw.IsLinkLocalUnicast()
	if len(ips) == 0 && !anyLink {
		return fmt.Errorf("%s: %s needs an address of the interface beside it; expected %s=ADDRESS/PREFIX", key, gw, ipKey)
	}
	on := false
	for _, p := range ips {
		if p.Addr() == gw {
			return fmt.Errorf("%s: %s is the interface's own address", key, gw)
		}
		if notAHost(gw, p) {
			return fmt.Errorf("%s: %s is the network or broadcast address of %s; expected the address of a router in it", key, gw, p.Masked())
		}
		on = on || p.Contains(gw)
	}
	if !on && !anyLink {
		return fmt.Errorf("%s: %s is not within %s", key, gw, joinPrefixes(ips))
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

// CheckInterfaces looks for what two interfaces cannot share.
func CheckInterfaces(all []Interface) error {
	owner := map[string]int{}
	claim := func(n int, thing string) error {
		if first, taken := owner[thing]; taken {
			return fmt.Errorf("%q: %s is that of eth%d already", all[n].String(), thing, first)
		}
		owner[thing] = n
		return nil
	}
	for n := range all {
		i := &all[n]
		var things []string
		if i.Type != TypeUser {
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
		for _, t := range things {
			if err := claim(n, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// UnmarshalText reads what MarshalText wrote.
func (m *MAC) UnmarshalText(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		*m = MAC{}
		return nil
	}
	a, err := net.ParseMAC(string(text))
	if err != nil || len(a) != len(m) {
		return fmt.Errorf("%q is not an Ethernet address", text)
	}
	*m = MAC(a)
	return nil
}
