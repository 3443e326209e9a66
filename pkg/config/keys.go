// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// key describes one key of an interface. The readers of specifications and files,
// the JSON Schema, the help and the reference are derived from this description.
type key struct {
	name string
	form string // form of the value
	help string
	list bool // the key can be given more than once
	flag bool // the value is on or off; the default is off
	// The limits of a number. Both are zero for other values.
	least, most int
	// why explains why only some types accept the key; %s stands for the names of
	// these types. If it is empty, all types accept the key.
	why string
	set func(i *Interface, value string) error
	get func(i *Interface) []string // returns the values in the form that set reads
}

const (
	ethernet = "is only supported by interfaces with Ethernet addresses: %s"
	only     = "is only supported by %s"
)

// Key is a key that only one type of interface has: see Type.Own.
type Key struct {
	Name, Form, Help string
	Flag             bool // the value is on or off; the default is off
	Least, Most      int  // the limits of a number; both are zero for other values

	// Check returns an error if the text is not a value. If it is nil, each text is one.
	Check func(value string) error
}

// key describes the key for the readers.
func (o *Key) key() key {
	k := key{name: o.Name, form: o.Form, help: o.Help, flag: o.Flag, least: o.Least, most: o.Most, why: only}
	if o.Flag {
		k.form = "on|off"
	}
	k.set = func(i *Interface, v string) (err error) {
		switch {
		case o.Flag:
			_, err = parseOn(v)
		case o.Most > 0:
			_, err = parseNumber(v, o.Least, o.Most)
		case o.Check != nil:
			err = o.Check(v)
		}
		i.setOwn(o.Name, v)
		return err
	}
	k.get = func(i *Interface) []string { return word(i.Own[o.Name]) }
	return k
}

// setOwn sets the value of a key that only the interface's type has.
func (i *Interface) setOwn(name, value string) {
	i.Own = maps.Clone(i.Own) // copies of the interface may share the map
	if i.Own == nil {
		i.Own = map[string]string{}
	}
	if i.Own[name] = value; value == "off" {
		delete(i.Own, name)
	}
}

// sharedKeys lists the keys of more than one type, in the order of output.
var sharedKeys = []key{
	{name: "ip", help: "an IPv4 address and the prefix length of its network", form: "ADDRESS/PREFIX", list: true,
		set: func(i *Interface, v string) error { return addPrefix(&i.IP, v, false) },
		get: func(i *Interface) []string { return texts(i.IP) }},
	{name: "ip6", help: "an IPv6 address and the prefix length of its network", form: "ADDRESS/PREFIX", list: true,
		set: func(i *Interface, v string) error { return addPrefix(&i.IP6, v, true) },
		get: func(i *Interface) []string { return texts(i.IP6) }},
	{name: "gw", help: "the default gateway", form: "ADDRESS",
		set: func(i *Interface, v string) error { return setGateway(&i.GW, v, false) },
		get: func(i *Interface) []string { return address(i.GW) }},
	{name: "gw6", help: "the default gateway for IPv6", form: "ADDRESS",
		set: func(i *Interface, v string) error { return setGateway(&i.GW6, v, true) },
		get: func(i *Interface) []string { return address(i.GW6) }},
	{name: "mac", help: "the Ethernet address (default: the same in each run)", form: "xx:xx:xx:xx:xx:xx", why: ethernet,
		set: func(i *Interface, v string) (err error) { i.MAC, err = parseMAC(v); return err },
		get: func(i *Interface) []string {
			if i.MAC.IsZero() {
				return nil
			}
			return []string{i.MAC.String()}
		}},
	{name: "mtu", help: "the MTU in bytes (default 1500; user: 65520)", form: "BYTES", least: MinMTU, most: MaxMTU, set: number(mtuOf, MinMTU, MaxMTU), get: getNumber(mtuOf)},
	{name: "dhcp", help: "get the IPv4 address, routes and name servers by DHCP", form: "on|off", flag: true, why: ethernet, set: onOff(dhcpOf), get: getOn(dhcpOf)},
	{name: "dhcp6", help: "get the IPv6 address and name servers by DHCPv6", form: "on|off", flag: true, why: ethernet, set: onOff(dhcp6Of), get: getOn(dhcp6Of)},
	{name: "slaac", help: "get IPv6 addresses and routes from router advertisements", form: "on|off", flag: true, why: "is only supported by %s: other types receive no router advertisements", set: onOff(slaacOf), get: getOn(slaacOf)},
	{name: "dns", help: "a name server reached through this interface", form: "ADDRESS", list: true,
		set: func(i *Interface, v string) error {
			a, err := ParseDNS(v)
			if err == nil && slices.Contains(i.DNS, a) {
				err = fmt.Errorf("%s: given twice", a)
			}
			i.DNS = append(i.DNS, a)
			return err
		},
		get: func(i *Interface) []string { return texts(i.DNS) }},
	{name: "group", help: "the device group number, as in \"ip link set group\"", form: "NUMBER", least: 1, most: 1<<31 - 1, set: number(groupOf, 1, 1<<31-1), get: getNumber(groupOf)},
	{name: "qdisc", help: "the queueing discipline, such as fq (default: net.core.default_qdisc)", form: "KIND", set: setQdisc, get: func(i *Interface) []string { return word(i.Qdisc) }},
	{name: "offload", help: "checksum and segmentation offloads: all that the device supports (on, the default), none (off), or the virtio features in the mask", form: "on|off|0xMASK", why: "is only supported by %s",
		set: setOffload, get: func(i *Interface) []string { return word(i.Offload) }},
	{name: "backup", help: "MPTCP sends here only if no other interface works", form: "on|off", flag: true, set: onOff(backupOf), get: getOn(backupOf)},
	{name: "signal", help: "MPTCP announces this address, and the peer connects to it", form: "on|off", flag: true, set: onOff(signalOf), get: getOn(signalOf)},
	{name: "fullmesh", help: "MPTCP opens a subflow to each address of the peer", form: "on|off", flag: true, set: onOff(fullmeshOf), get: getOn(fullmeshOf)},
	{name: "table", help: "the number of its routing table (default: 100 + N for ethN)", form: "NUMBER", least: 1, most: 1<<31 - 1, set: setTable, get: getNumber(tableOf)},
	{name: "vlan", help: "VLAN ID; addresses and routes are configured on ethN.ID", form: "ID", why: "is only supported by %s",
		least: 1, most: 4094, set: number(vlanOf, 1, 4094), get: getNumber(vlanOf)},
	{name: "neigh", help: "a permanent neighbour entry", form: "IP|MAC", list: true, why: ethernet,
		set: func(i *Interface, v string) error {
			n, err := ParseNeighbour(v)
			if err == nil && slices.ContainsFunc(i.Neigh, func(o Neighbour) bool { return o.IP == n.IP }) {
				err = fmt.Errorf("%s: given twice", n.IP)
			}
			i.Neigh = append(i.Neigh, n)
			return err
		},
		get: func(i *Interface) []string { return texts(i.Neigh) }},
	{name: "route", help: "a static route to a network", form: "PREFIX|GATEWAY", list: true,
		set: func(i *Interface, v string) error {
			r, err := ParseRoute(v)
			if err == nil && slices.ContainsFunc(i.Routes, func(o Route) bool { return o.To == r.To }) {
				err = fmt.Errorf("%s: given twice", r.To)
			}
			i.Routes = append(i.Routes, r)
			return err
		},
		get: func(i *Interface) []string { return texts(i.Routes) }},
}

func mtuOf(i *Interface) *int       { return &i.MTU }
func groupOf(i *Interface) *int     { return &i.Group }
func tableOf(i *Interface) *int     { return &i.Table }
func vlanOf(i *Interface) *int      { return &i.VLAN }
func dhcpOf(i *Interface) *bool     { return &i.DHCP }
func dhcp6Of(i *Interface) *bool    { return &i.DHCP6 }
func slaacOf(i *Interface) *bool    { return &i.SLAAC }
func backupOf(i *Interface) *bool   { return &i.Backup }
func signalOf(i *Interface) *bool   { return &i.Signal }
func fullmeshOf(i *Interface) *bool { return &i.Fullmesh }

// interfaceKeys lists all keys in the order of output: those of more than one type,
// and those of each type.
func interfaceKeys() []key {
	all := slices.Clone(sharedKeys)
	for _, t := range interfaceTypes {
		for n := range t.Own {
			all = append(all, t.Own[n].key())
		}
	}
	return all
}

func findKey(name string) *key {
	for n := range sharedKeys {
		if sharedKeys[n].name == name {
			return &sharedKeys[n]
		}
	}
	for _, t := range interfaceTypes {
		for n := range t.Own {
			if t.Own[n].Name == name {
				k := t.Own[n].key()
				return &k
			}
		}
	}
	return nil
}

// takenBy reports whether an interface type accepts the key.
func (k *key) takenBy(t *Type) bool {
	return k.why == "" || slices.Contains(t.Keys, k.name) || slices.ContainsFunc(t.Own, func(o Key) bool { return o.Name == k.name })
}

// refusal returns an error that explains why a type does not accept the key.
func (k *key) refusal(t *Type) error {
	if why := t.Why[k.name]; why != "" {
		return errors.New(why)
	}
	return fmt.Errorf(k.why, typesWith(k.takenBy))
}

func keyNames() []string {
	var names []string
	for _, k := range interfaceKeys() {
		names = append(names, k.name)
	}
	return names
}

func number(field func(*Interface) *int, least, most int) func(*Interface, string) error {
	return func(i *Interface, v string) (err error) {
		*field(i), err = parseNumber(v, least, most)
		return err
	}
}

func parseNumber(v string, least, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q; expected a number from %d to %d", v, least, most)
	}
	return n, nil
}

func getNumber(field func(*Interface) *int) func(*Interface) []string {
	return func(i *Interface) []string {
		if n := *field(i); n != 0 {
			return []string{strconv.Itoa(n)}
		}
		return nil
	}
}

func onOff(field func(*Interface) *bool) func(*Interface, string) error {
	return func(i *Interface, v string) (err error) {
		*field(i), err = parseOn(v)
		return err
	}
}

func parseOn(v string) (bool, error) {
	if v != "on" && v != "off" {
		return false, fmt.Errorf("%q; expected on or off", v)
	}
	return v == "on", nil
}

func getOn(field func(*Interface) *bool) func(*Interface) []string {
	return func(i *Interface) []string {
		if *field(i) {
			return []string{"on"}
		}
		return nil
	}
}

// setTable sets the number of a routing table. It rejects the kernel's own
// tables (include/uapi/linux/rtnetlink.h).
func setTable(i *Interface, v string) error {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("%q; expected a number from 1 to %d", v, 1<<31-1)
	}
	if n >= 253 && n <= 255 {
		return fmt.Errorf("%d is a table of the kernel; expected another number, such as %d", n, FirstTable)
	}
	i.Table = int(n)
	return nil
}

func setQdisc(i *Interface, v string) error {
	if len(v) > 15 || strings.Trim(v, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("%q is not a queueing discipline; expected one such as fq, fq_codel or pfifo_fast", v)
	}
	i.Qdisc = v
	return nil
}

func setOffload(i *Interface, v string) error {
	if mask, ok := strings.CutPrefix(v, "0x"); ok {
		n, err := strconv.ParseUint(mask, 16, 64)
		if err == nil {
			i.Offload = "0x" + strconv.FormatUint(n, 16)
			return nil
		}
	}
	if v != "on" && v != "off" {
		return fmt.Errorf("%q; expected on, off or a mask of virtio features, such as 0x883", v)
	}
	i.Offload = v
	return nil
}

func texts[T fmt.Stringer](all []T) []string {
	var s []string
	for _, v := range all {
		s = append(s, v.String())
	}
	return s
}

func address(a netip.Addr) []string {
	if !a.IsValid() {
		return nil
	}
	return []string{a.String()}
}

func word(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
