// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// MaxAllows is the maximum number of destinations that a run can permit.
const MaxAllows = 256

// Allow is a destination that a run may reach: the addresses of a name, or all
// addresses of a prefix, on one port or on all ports if the port is 0.
type Allow struct {
	Name   string       // in lower case, without a final dot; *.NAME means all names below NAME; empty: Prefix applies
	Prefix netip.Prefix // if there is no name
	Port   uint16
}

const allowForm = "expected NAME[:PORT] or CIDR[:PORT], such as pypi.org:443, *.example.com or 10.0.0.0/8"

// ParseAllow parses NAME[:PORT] or CIDR[:PORT]. A name may be international, and
// may end with a dot.
func ParseAllow(s string) (Allow, error) {
	if strings.Contains(s, "//") {
		return Allow{}, fmt.Errorf("%q is a URL; %s", s, allowForm)
	}
	name, port, given := strings.Cut(s, ":")
	if _, err := netip.ParseAddr(name); err == nil || strings.HasPrefix(s, "[") || strings.Contains(s, "/") || strings.Count(s, ":") > 1 {
		h, err := ParseHostNet(s)
		if err != nil {
			text := strings.Replace(err.Error(), hostNetForm, allowForm, 1)
			return Allow{}, fmt.Errorf("%s", text)
		}
		return Allow{Prefix: h.Prefix, Port: h.Port}, nil
	}
	a := Allow{}
	if given {
		n, err := ParsePort(port)
		if err != nil {
			return Allow{}, fmt.Errorf("%q: %w", s, err)
		}
		a.Port = uint16(n)
	}
	below, wild := strings.CutPrefix(strings.TrimSuffix(name, "."), "*.")
	if strings.ContainsFunc(below, func(c rune) bool { return c > '~' }) {
		ascii, err := idna.Lookup.ToASCII(below)
		if err != nil {
			return Allow{}, fmt.Errorf("%q: %q is not a valid international name", s, name)
		}
		below = ascii
	}
	below = strings.ToLower(below)
	// An address in another notation, such as 127.1, would never match.
	if !isHostName(below) || strings.Trim(below[strings.LastIndexByte(below, '.')+1:], "0123456789") == "" {
		return Allow{}, fmt.Errorf("%q: %q is neither a host name nor an address; %s", s, name, allowForm)
	}
	if a.Name = below; wild {
		a.Name = "*." + below
	}
	return a, nil
}

// Matches reports whether a query for name falls under the rule. The name is in
// lower case, without a final dot.
func (a Allow) Matches(name string) bool {
	if below, wild := strings.CutPrefix(a.Name, "*"); wild {
		return len(name) > len(below) && strings.HasSuffix(name, below)
	}
	return a.Name != "" && name == a.Name
}

// String formats the destination for ParseAllow.
func (a Allow) String() string {
	if a.Name == "" {
		return HostNet{a.Prefix, a.Port}.String()
	}
	if a.Port == 0 {
		return a.Name
	}
	return a.Name + ":" + strconv.Itoa(int(a.Port))
}

// MarshalText formats the destination for ParseAllow.
func (a Allow) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (a *Allow) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAllow(string(text))
	return err
}
