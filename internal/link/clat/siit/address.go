// SPDX-License-Identifier: Apache-2.0

package siit

import (
	"fmt"
	"net/netip"
)

// WellKnown is the prefix of RFC 6052, 2.1, for global addresses only.
var WellKnown = netip.MustParsePrefix("64:ff9b::/96")

// CheckPrefix returns an error if a prefix cannot embed IPv4 addresses (RFC 6052, 2.2).
func CheckPrefix(p netip.Prefix) error {
	switch bits := p.Bits(); {
	case !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6():
		return fmt.Errorf("%s is not an IPv6 prefix", p)
	case bits != 32 && bits != 40 && bits != 48 && bits != 56 && bits != 64 && bits != 96:
		return fmt.Errorf("%s: a NAT64 prefix has a length of 32, 40, 48, 56, 64 or 96", p)
	case p != p.Masked():
		return fmt.Errorf("%s has bits set after the prefix; expected %s", p, p.Masked())
	case p.Addr().As16()[8] != 0:
		return fmt.Errorf("%s: bits 64 to 71 of a NAT64 prefix must be zero", p)
	case p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast() || p.Addr().IsUnspecified():
		return fmt.Errorf("%s contains no addresses of other machines", p)
	}
	return nil
}

// Embed returns the IPv6 address of an IPv4 address.
func Embed(p netip.Prefix, a netip.Addr) netip.Addr {
	to, from := p.Addr().As16(), a.As4()
	for i, at := range places(p) {
		to[at] = from[i]
	}
	return netip.AddrFrom16(to)
}

// Extract returns the IPv4 address in an IPv6 address. It reports false if the address is
// not in the prefix, or has a suffix.
func Extract(p netip.Prefix, a netip.Addr) (netip.Addr, bool) {
	var to [4]byte
	from := a.As16()
	for i, at := range places(p) {
		to[i] = from[at]
	}
	v4 := netip.AddrFrom4(to)
	return v4, p.Contains(a) && Embed(p, v4) == a
}

// places returns the bytes of the IPv4 address in an IPv6 address. Byte 8 is zero.
func places(p netip.Prefix) [4]int {
	var all [4]int
	at := p.Bits() / 8
	for i := range all {
		if at == 8 {
			at++
		}
		all[i] = at
		at++
	}
	return all
}

// notGlobal are the networks that the well-known prefix must not carry: those of the IANA
// registry of special-purpose addresses that are not globally reachable.
var notGlobal = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)

// notRouted are the networks that no prefix carries. 192.0.0.0/29 is ours (RFC 7335).
var notRouted = prefixes("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/29", "224.0.0.0/4", "240.0.0.0/4")

func prefixes(all ...string) (list []netip.Prefix) {
	for _, s := range all {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// carries reports whether a prefix may carry an IPv4 address (RFC 6052, 3.1).
func carries(p netip.Prefix, a netip.Addr) bool {
	no := notRouted
	if p == WellKnown {
		no = notGlobal
	}
	for _, n := range no {
		if n.Contains(a) {
			return false
		}
	}
	return true
}
