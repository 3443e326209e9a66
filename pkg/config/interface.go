// SPDX-License-Identifier: Apache-2.0

// Package config holds the user's configuration of a run (interfaces, kernel
// settings, sizes) as plain data. It reads this data from a file of JSON with
// comments, the environment, flags, profiles, and the configuration of LKL's
// own hijack library.
//
// Load merges all sources. The resulting Config contains the Run and the origin
// of each value. ParseFile and Resolve do the same for data from elsewhere;
// ParseInterface and similar functions parse single words. An error is one line
// that names the place, the invalid part and the expected form.
//
// Each fact about a setting is in one table (settings.go, keys.go). The
// readers, the JSON Schema, the help and docs/reference/configuration.md are derived from
// these tables.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// Types of an interface.
const (
	TypeUser    = "user"    // the user-mode gateway
	TypeTap     = "tap"     // a tap device of the host
	TypeMacvtap = "macvtap" // a macvtap on a device of the host
	TypeRaw     = "raw"     // an Ethernet device of the host, through packet sockets
	TypeRawIP   = "rawip"   // a device of the host, with whole IP packets
	TypeFD      = "fd"      // an inherited frame socket or tap descriptor
)

// Modes of a macvtap.
const (
	ModeBridge   = "bridge"
	ModePrivate  = "private"
	ModeVEPA     = "vepa"
	ModePassthru = "passthru"
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

// Neighbour is an address whose Ethernet address is known in advance.
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
		return Neighbour{}, fmt.Errorf("%q is not the address of a neighbour", addr)
	}
	m, err := parseMAC(mac)
	return Neighbour{IP: a, MAC: m}, err
}

// String formats the neighbour for ParseNeighbour.
func (n Neighbour) String() string { return n.IP.String() + "|" + n.MAC.String() }

// Interface is an interface of the stack and its connection to the host.
// Interfaces become eth0, eth1, ... in the order given.
type Interface struct {
	Type     string         `json:"type"`
	Device   string         `json:"device,omitempty"` // tap, macvtap, raw, rawip: the host's device
	FD       int            `json:"fd,omitempty"`     // fd: the descriptor's number
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
	Bridge   string         `json:"bridge,omitempty"`   // tap: the host's bridge to join
	NAT      bool           `json:"nat,omitempty"`      // tap: masquerade behind the host's addresses
	Mode     string         `json:"mode,omitempty"`     // macvtap; empty: ModeBridge
	Neigh    []Neighbour    `json:"neigh,omitempty"`

	// Multiqueue makes the run use one queue of a tap. Other runs with the
	// same address use the other queues.
	Multiqueue bool `json:"multiqueue,omitempty"`
}

// interfaceType describes a type: its argument after the colon, and its
// purpose.
type interfaceType struct {
	name string
	arg  string // the argument's key in a file; "": no argument
	form string
	help string
}

// interfaceTypes lists the types in the order of output.
var interfaceTypes = []interfaceType{
	{TypeUser, "", "", "a user-mode gateway to everything the host reaches (default). 192.168.127.254 is the host's 127.0.0.1"},
	{TypeTap, "device", "NAME", "the tap device NAME of the host, created if needed and then removed at the end"},
	{TypeMacvtap, "device", "DEV", "a macvtap on the host's device DEV, with its own Ethernet address; or an existing /dev/tapN"},
	{TypeRaw, "device", "DEV", "a packet socket on the host's Ethernet device DEV; without ip=, it shares the host's address"},
	{TypeRawIP, "device", "DEV", "as raw, for a device without Ethernet, such as rmnet0, ppp0 or a tun"},
	{TypeFD, "fd", "N", "an inherited descriptor: a SOCK_DGRAM or SOCK_SEQPACKET socket with one frame per message, a tap, a tun or a packet socket"},
}

// spec returns TYPE or TYPE:ARG.
func (t *interfaceType) spec() string {
	if t.form == "" {
		return t.name
	}
	return t.name + ":" + t.form
}

func findType(name string) *interfaceType {
	n := slices.IndexFunc(interfaceTypes, func(t interfaceType) bool { return t.name == name })
	if n < 0 {
		return nil
	}
	return &interfaceTypes[n]
}

func interfaceTypeNames() []string {
	names := make([]string, len(interfaceTypes))
	for n, t := range interfaceTypes {
		names[n] = t.name
	}
	return names
}

// interfaceForms lists the types for an error.
func interfaceForms() string {
	forms := make([]string, len(interfaceTypes))
	for n := range interfaceTypes {
		forms[n] = interfaceTypes[n].spec()
	}
	last := len(forms) - 1
	return strings.Join(forms[:last], ", ") + " or " + forms[last]
}

// Target returns the TYPE:ARG part of the specification.
func (i *Interface) Target() string {
	switch i.Type {
	case TypeTap, TypeMacvtap, TypeRaw, TypeRawIP:
		return i.Type + ":" + i.Device
	case TypeFD:
		return i.Type + ":" + strconv.Itoa(i.FD)
	}
	return i.Type
}

// String formats the interface as a specification for ParseInterface.
func (i *Interface) String() string {
	var b strings.Builder
	b.WriteString(i.Target())
	for n := range interfaceKeys {
		k := &interfaceKeys[n]
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
	for n := range interfaceKeys {
		if k := &interfaceKeys[n]; len(k.get(i)) > 0 {
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
			return i, fmt.Errorf("%q: unknown key; %s", name, suggest.Or(name, keyNames(), "known are "+strings.Join(keyNames(), ", ")))
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
	switch typ {
	case TypeUser:
		if hasArg {
			return fmt.Errorf("%s: takes no %q; expected %[1]s[,KEY=VALUE]", typ, ":"+arg)
		}
	case TypeTap:
		if err := checkDevice(arg); err != nil {
			return fmt.Errorf("tap: %w; expected tap:NAME", err)
		}
		i.Device = arg
	case TypeMacvtap:
		if err := checkDevice(arg); err != nil && !macvtapPath(arg) {
			return fmt.Errorf("macvtap: %w; expected macvtap:DEV, or macvtap:/dev/tapN for one that exists", err)
		}
		i.Device = arg
	case TypeRaw, TypeRawIP:
		if err := checkDevice(arg); err != nil {
			return fmt.Errorf("%s: %w; expected %[1]s:DEV", typ, err)
		}
		i.Device = arg
	case TypeFD:
		n, err := strconv.ParseUint(arg, 10, 31)
		if err != nil || n < 3 {
			return fmt.Errorf("fd: %q; expected the number of an open descriptor, 3 or above", arg)
		}
		i.FD = int(n)
	case "":
		return errors.New("no interface type; expected " + interfaceForms())
	default:
		return unknownType(typ, "expected "+interfaceForms())
	}
	return nil
}

// unknownType returns the error for a type that does not exist, or no longer.
func unknownType(typ, expected string) error {
	if typ == "passt" {
		return fmt.Errorf("%q: no longer an interface type: the gateway of user carries more; use user", typ)
	}
	return fmt.Errorf("%q: unknown interface type; %s", typ, suggest.Or(typ, interfaceTypeNames(), expected))
}

// macvtapPath reports whether arg is the path of a macvtap's character device.
func macvtapPath(arg string) bool {
	return strings.HasPrefix(arg, "/") && !strings.HasSuffix(arg, "/") &&
		!strings.ContainsFunc(arg, func(r rune) bool { return r <= ' ' || r > '~' })
}
