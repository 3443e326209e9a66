// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// MAC is an Ethernet address. The zero value means that no address is given.
type MAC [6]byte

// IsZero reports whether no address is given.
func (m MAC) IsZero() bool { return m == MAC{} }

// String formats the address as xx:xx:xx:xx:xx:xx.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText formats the address like String. The result is empty if no address is
// given.
func (m MAC) MarshalText() ([]byte, error) {
	if m.IsZero() {
		return nil, nil
	}
	return []byte(m.String()), nil
}

// UnmarshalText parses the output of MarshalText.
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

// parseMAC parses the Ethernet address of a single station.
func parseMAC(value string) (MAC, error) {
	a, err := net.ParseMAC(value)
	if err != nil || len(a) != len(MAC{}) {
		return MAC{}, fmt.Errorf("%q is not an Ethernet address; expected xx:xx:xx:xx:xx:xx", value)
	}
	m := MAC(a)
	if m[0]&1 != 0 || m.IsZero() {
		return MAC{}, fmt.Errorf("%s is a group or zero address; expected a unicast address, such as 02:00:00:00:00:01", m)
	}
	return m, nil
}

// CheckDevice applies the kernel's rules for the name of a network device
// (dev_valid_name(), net/core/dev.c). It also rejects '%', because the kernel
// interprets it as a pattern, and all characters except printable ASCII.
func CheckDevice(name string) error {
	switch {
	case name == "":
		return errors.New("no device name")
	case len(name) > 15: // IFNAMSIZ - 1
		return fmt.Errorf("device name %q is longer than 15 characters", name)
	case name == "." || name == ".." || strings.ContainsAny(name, "/:%") ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%q is not a valid device name", name)
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
	case isNetworkOrBroadcast(a, p):
		return fmt.Errorf("%s is the network or broadcast address of %s; expected a host address in it", a, p.Masked())
	}
	for _, other := range *list {
		if other.Addr() == a {
			return fmt.Errorf("%s: given twice", a)
		}
	}
	*list = append(*list, p)
	return nil
}

// isNetworkOrBroadcast reports whether a is the network or broadcast address of an IPv4
// prefix. A prefix of 31 bits has neither (RFC 3021).
func isNetworkOrBroadcast(a netip.Addr, p netip.Prefix) bool {
	return a.Is4() && p.Addr().Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == Broadcast(p))
}

// Broadcast returns the last address of an IPv4 prefix.
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
