// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// Limits of an MTU. The minimum is IPv4's (RFC 791); IPv6 requires 1280 (RFC
// 8200). The maximum leaves room for an Ethernet header in a message of 64 KiB.
const (
	MinMTU  = 68
	MinMTU6 = 1280
	MaxMTU  = 65520
)

// FirstTable is the default routing table of eth0. eth1 has the next one, and
// so on.
const FirstTable = 100

// Neighbour is an IP address with its Ethernet address, which is configured in
// advance.
type Neighbour struct {
	IP  netip.Addr `json:"ip"`
	MAC MAC        `json:"mac"`
}

// ParseNeighbour parses IP|MAC.
func ParseNeighbour(s string) (Neighbour, error) {
	addr, mac, ok := strings.Cut(s, "|")
	if !ok {
		return Neighbour{}, fmt.Errorf("%q; expected IP|MAC, such as 192.0.2.1|02:00:00:00:00:01", s)
	}
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
		return Neighbour{}, fmt.Errorf("%q is not a neighbour address", addr)
	}
	m, err := parseMAC(mac)
	return Neighbour{IP: a, MAC: m}, err
}

// String formats the neighbour for ParseNeighbour.
func (n Neighbour) String() string { return n.IP.String() + "|" + n.MAC.String() }

// Route is a static route through a gateway.
type Route struct {
	To  netip.Prefix `json:"to"`
	Via netip.Addr   `json:"via"`
}

// ParseRoute parses PREFIX|GATEWAY.
func ParseRoute(s string) (Route, error) {
	to, via, ok := strings.Cut(s, "|")
	if !ok {
		return Route{}, fmt.Errorf("%q; expected PREFIX|GATEWAY, such as 198.51.100.0/24|192.0.2.1", s)
	}
	p, err := netip.ParsePrefix(to)
	switch {
	case err != nil || p.Addr().Is4In6():
		return Route{}, fmt.Errorf("%q is not the prefix of a network; expected one such as 198.51.100.0/24", to)
	case p != p.Masked():
		return Route{}, fmt.Errorf("%s has bits set after the prefix; expected %s", p, p.Masked())
	case p.Bits() == 0 && p.Addr().Is4():
		return Route{}, fmt.Errorf("%s is the default route; use gw= for it", p)
	case p.Bits() == 0:
		return Route{}, fmt.Errorf("%s is the default route; use gw6= for it", p)
	}
	r := Route{To: p}
	return r, setGateway(&r.Via, via, p.Addr().Is6())
}

// String formats the route for ParseRoute.
func (r Route) String() string { return r.To.String() + "|" + r.Via.String() }

// Interface is an interface of the stack and its connection to the host.
// Interfaces become eth0, eth1, ... in the order given.
type Interface struct {
	Type     string         `json:"type"`
	Device   string         `json:"device,omitempty"` // name of the host's device
	FD       int            `json:"fd,omitempty"`     // number of an inherited descriptor; 0: none
	IP       []netip.Prefix `json:"ip,omitempty"`
	IP6      []netip.Prefix `json:"ip6,omitempty"`
	GW       netip.Addr     `json:"gw,omitzero"`
	GW6      netip.Addr     `json:"gw6,omitzero"`
	MAC      MAC            `json:"mac,omitzero"`
	MTU      int            `json:"mtu,omitempty"` // 0: the type's default
	DHCP     bool           `json:"dhcp,omitempty"`
	DHCP6    bool           `json:"dhcp6,omitempty"`
	SLAAC    bool           `json:"slaac,omitempty"`
	DNS      []netip.Addr   `json:"dns,omitempty"`
	Group    int            `json:"group,omitempty"`    // device group in the stack
	Qdisc    string         `json:"qdisc,omitempty"`    // kind of the root qdisc; empty: the stack's default
	Offload  string         `json:"offload,omitempty"`  // on, off or 0xMASK; empty: the type's default
	Backup   bool           `json:"backup,omitempty"`   // flags of the MPTCP endpoint
	Signal   bool           `json:"signal,omitempty"`   //
	Fullmesh bool           `json:"fullmesh,omitempty"` //
	Table    int            `json:"table,omitempty"`    // 0: FirstTable plus the interface's number
	VLAN     int            `json:"vlan,omitempty"`     // 0: none; otherwise ethN.VLAN has all addresses and routes
	Neigh    []Neighbour    `json:"neigh,omitempty"`
	Routes   []Route        `json:"routes,omitempty"`

	// Own has the values of the keys that only this type has (Type.Own). A flag that is
	// off is not in it.
	Own map[string]string `json:"own,omitempty"`
}

// On reports whether a flag that only this type has is on.
func (i *Interface) On(flag string) bool { return i.Own[flag] == "on" }

// Target returns the TYPE:ARG part of the specification.
func (i *Interface) Target() string {
	if arg := i.Arg(); arg != "" {
		return i.Type + ":" + arg
	}
	return i.Type
}

// Arg returns the argument of the type: the name of the host's device or the number
// of the descriptor.
func (i *Interface) Arg() string {
	if i.FD != 0 {
		return strconv.Itoa(i.FD)
	}
	return i.Device
}

// String formats the interface as a specification for ParseInterface.
func (i *Interface) String() string {
	var b strings.Builder
	b.WriteString(i.Target())
	for _, k := range interfaceKeys() {
		for _, v := range k.get(i) {
			b.WriteString("," + k.name)
			if !k.flag {
				b.WriteString("=" + v)
			}
		}
	}
	return b.String()
}

// Keys lists the keys that are set for the interface.
func (i *Interface) Keys() []string {
	var keys []string
	for _, k := range interfaceKeys() {
		if len(k.get(i)) > 0 {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// ParseInterface parses TYPE[:ARG][,KEY[=VALUE]]... The error names the
// specification and the invalid part.
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
		name, value, given := strings.Cut(part, "=")
		k := findKey(name)
		switch {
		case k == nil:
			return i, fmt.Errorf("%q: unknown key; %s", name, suggest.Suggest(name, keyNames(), "expected one of "+strings.Join(keyNames(), ", ")))
		case seen[name] && !k.list:
			return i, fmt.Errorf("%s: given twice", name)
		case k.flag && !given:
			value = "on"
		case value == "":
			return i, fmt.Errorf("%s: no value; expected %s=%s", name, name, k.form)
		}
		seen[name] = true
		if err := k.set(&i, value); err != nil {
			return i, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := i.check(); err != nil {
		return i, err
	}
	return i, nil
}

func (i *Interface) setTarget(s string) error {
	typ, arg, hasArg := strings.Cut(s, ":")
	i.Type = typ
	t := findType(typ)
	switch {
	case typ == "" && len(interfaceTypes) > 0:
		return errors.New("no interface type; expected " + interfaceForms())
	case t == nil:
		return unknownType(typ, "expected "+interfaceForms())
	case t.ParseArg != nil:
		return t.ParseArg(i, arg)
	case t.Arg == "" && hasArg:
		return fmt.Errorf("%s: unexpected %q; expected %[1]s[,KEY=VALUE]", typ, ":"+arg)
	case t.Arg == "device":
		if err := CheckDevice(arg); err != nil {
			return fmt.Errorf("%s: %w; expected %s", typ, err, t.spec())
		}
		i.Device = arg
	case t.Arg == "fd":
		n, err := strconv.ParseUint(arg, 10, 31)
		if err != nil || n < 3 {
			return fmt.Errorf("%s: %q; expected the number of an open descriptor, at least 3", typ, arg)
		}
		i.FD = int(n)
	}
	return nil
}
