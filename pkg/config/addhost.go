// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// MaxAddHosts is the maximum number of additional lines in the program's
// /etc/hosts.
const MaxAddHosts = 2048

// HostName is a name with its address, for the program's /etc/hosts.
type HostName struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
}

// ParseAddHost parses NAME=ADDRESS.
func ParseAddHost(s string) (HostName, error) {
	const want = "expected NAME=ADDRESS, such as server=192.0.2.1"
	name, addr, ok := strings.Cut(s, "=")
	if !ok {
		return HostName{}, fmt.Errorf("%q; %s", s, want)
	}
	if !isHostName(name) {
		return HostName{}, fmt.Errorf("%q: %q is not a host name; %s", s, name, want)
	}
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" {
		return HostName{}, fmt.Errorf("%q: %q is not an IP address; %s", s, addr, want)
	}
	return HostName{Name: name, Addr: a}, nil
}

// String formats the name for ParseAddHost.
func (h HostName) String() string { return h.Name + "=" + h.Addr.String() }

// isHostName applies the rules of RFC 1123, section 2.1. It also accepts an
// underscore, which names of containers often contain.
func isHostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, func(c rune) bool {
				return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
			}) {
			return false
		}
	}
	return true
}
