// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Sysctl is one setting of the stack: a name with dots, and a value.
type Sysctl struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Optional bool   `json:"optional,omitempty"` // skip it if the stack lacks it
}

// String formats the setting for ParseSysctl.
func (s Sysctl) String() string {
	if s.Optional {
		return "-" + s.Name + "=" + s.Value
	}
	return s.Name + "=" + s.Value
}

// ParseSysctl parses NAME=VALUE. A leading dash marks it as optional, as in
// sysctl.d(5). The name can use dots or slashes, as in sysctl(8). If the name
// contains slashes, a dot is part of a name component.
func ParseSysctl(s string) (Sysctl, error) {
	name, value, ok := strings.Cut(s, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	name, optional := strings.CutPrefix(name, "-")
	switch {
	case !ok || name == "" || value == "":
		return Sysctl{}, fmt.Errorf("%q; expected NAME=VALUE, such as net.ipv4.tcp_congestion_control=bbr", s)
	case strings.ContainsAny(value, "\n\x00"):
		return Sysctl{}, fmt.Errorf("%q: the value has more than one line", name)
	}
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '/' }) {
		if strings.ContainsAny(part, " \t\n\x00") {
			return Sysctl{}, fmt.Errorf("%q is not a sysctl name", name)
		}
	}
	if strings.Trim(name, "./") != name || slices.ContainsFunc([]string{"..", "//", "./", "/."}, func(s string) bool { return strings.Contains(name, s) }) {
		return Sysctl{}, fmt.Errorf("%q is not a sysctl name", name)
	}
	return Sysctl{Name: name, Value: value, Optional: optional}, nil
}

// Limits of the stack's memory. Linux 6.12 as a library boots in 12 MiB, and needs
// more memory to transfer data.
const (
	MinMem = 32 << 20
	MaxMem = 1 << 40
)

// ParseMem parses the size of the stack's memory: a number with K, M or G
// (powers of 1024).
func ParseMem(s string) (uint64, error) { return parseSize(s, MinMem, MaxMem) }

func parseSize(s string, least, most uint64) (uint64, error) {
	const want = "expected a size such as 64M or 1G"
	digits := strings.TrimRight(s, "kKmMgGiIbB")
	shift := map[string]uint{"": 0, "k": 10, "m": 20, "g": 30}
	unit := strings.ToLower(s[len(digits):])
	unit = strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i")
	bits, ok := shift[unit]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !ok || n > math.MaxUint64>>bits {
		return 0, fmt.Errorf("%q; %s", s, want)
	}
	n <<= bits
	if n < least || n > most {
		return 0, fmt.Errorf("%q; expected a size from %s to %s", s, FormatMem(least), FormatMem(most))
	}
	return n, nil
}

// FormatMem formats a size for ParseMem.
func FormatMem(n uint64) string {
	switch {
	case n != 0 && n%(1<<30) == 0:
		return strconv.FormatUint(n>>30, 10) + "G"
	case n != 0 && n%(1<<20) == 0:
		return strconv.FormatUint(n>>20, 10) + "M"
	case n != 0 && n%(1<<10) == 0:
		return strconv.FormatUint(n>>10, 10) + "K"
	}
	return strconv.FormatUint(n, 10)
}

// ParseDNS parses the address of a name server.
func ParseDNS(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsUnspecified() || a.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%q; expected the IP address of a name server", s)
	}
	return a, nil
}
