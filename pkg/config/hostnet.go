// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// MaxHostNets is the maximum number of destinations that a run can leave to the
// host's stack.
const MaxHostNets = 64

// HostNet is a destination that uses the host's stack. It consists of all addresses
// of a prefix on one port, or on all ports if the port is 0.
type HostNet struct {
	Prefix netip.Prefix
	Port   uint16
}

const hostNetForm = "expected CIDR[:PORT], such as 10.0.0.0/8, 127.0.0.1:5432 or [::1]:5432"

// ParseHostNet parses CIDR[:PORT]. An address without a length is a prefix of
// its full length. Before a port, an IPv6 address must be in brackets, with or
// without its length.
func ParseHostNet(s string) (HostNet, error) {
	addr, port := s, ""
	if rest, ok := strings.CutPrefix(s, "["); ok {
		var after string
		if addr, after, ok = strings.Cut(rest, "]"); !ok {
			return HostNet{}, fmt.Errorf("%q; %s", s, hostNetForm)
		}
		if after != "" {
			if port, ok = strings.CutPrefix(after, ":"); !ok || port == "" {
				return HostNet{}, fmt.Errorf("%q; %s", s, hostNetForm)
			}
		}
	} else if strings.Count(s, ":") == 1 {
		addr, port, _ = strings.Cut(s, ":")
		if port == "" {
			return HostNet{}, fmt.Errorf("%q: no port after the colon; %s", s, hostNetForm)
		}
	}
	var h HostNet
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return HostNet{}, fmt.Errorf("%q: %q is not a port; expected a number from 1 to 65535", s, port)
		}
		h.Port = uint16(n)
	}
	var err error
	if h.Prefix, err = parsePrefix(addr); err != nil {
		return HostNet{}, fmt.Errorf("%q; %s", s, hostNetForm)
	}
	if masked := h.Prefix.Masked(); masked != h.Prefix {
		return HostNet{}, fmt.Errorf("%q: %s has host bits set; expected %s, or %s for this address only", s, h.Prefix, masked, h.Prefix.Addr())
	}
	return h, nil
}

// parsePrefix parses a prefix. An address without a length is a prefix of its
// full length.
func parsePrefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err == nil && p.Addr().Is4In6() {
			err = fmt.Errorf("%s is an IPv4-mapped IPv6 address", p.Addr())
		}
		return p, err
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	if a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%s has an IPv6 zone, which is not supported", a)
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// String formats the destination for ParseHostNet.
func (h HostNet) String() string {
	s := h.Prefix.String()
	if h.Prefix.IsSingleIP() {
		s = h.Prefix.Addr().String()
	}
	if h.Port == 0 {
		return s
	}
	if h.Prefix.Addr().Is6() {
		s = "[" + s + "]"
	}
	return s + ":" + strconv.Itoa(int(h.Port))
}

// MarshalText formats the destination for ParseHostNet.
func (h HostNet) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (h *HostNet) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHostNet(string(text))
	return err
}
