// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
)

// LKL's hijack library reads its configuration from a file lkl-hijack.json, in
// which all values are strings. For a single interface, it can also read
// variables LKL_HIJACK_*.

// hijackKeys lists the keys of the file, except interfaces, with their variables.
// If a key appears twice, one of its variables is for programs that are linked with
// LKL. This variable is the weaker one.
var hijackKeys = []struct{ key, variable string }{
	{"gateway", "LKL_HIJACK_NET_GATEWAY"},
	{"gateway6", "LKL_HIJACK_NET_GATEWAY6"},
	{"nameserver", "LKL_HIJACK_NAMESERVER"},
	{"debug", "LKL_HIJACK_DEBUG"},
	{"singlecpu", "LKL_HIJACK_SINGLE_CPU"},
	{"sysctl", "LKL_HIJACK_SYSCTL"},
	{"boot_cmdline", "LKL_HIJACK_BOOT_CMDLINE"},
	{"mount", "LKL_HIJACK_MOUNT"},
	{"dump", "LKL_HIJACK_DUMP"},
	{"delay_main", "LKL_HIJACK_DELAY_MAIN"},
	{"sysctl", "LKL_SYSCTL"},
	{"boot_cmdline", "LKL_BOOT_CMDLINE"},
}

// hijackInterfaceKeys lists the keys of an interface. If a key appears twice,
// one of the names is an older name of its variable.
var hijackInterfaceKeys = []struct{ key, variable string }{
	{"type", "LKL_HIJACK_NET_IFTYPE"},
	{"param", "LKL_HIJACK_NET_IFPARAMS"},
	{"ip", "LKL_HIJACK_NET_IP"},
	{"masklen", "LKL_HIJACK_NET_NETMASK_LEN"},
	{"ifgateway", "LKL_HIJACK_NET_IFGATEWAY"},
	{"ipv6", "LKL_HIJACK_NET_IPV6"},
	{"masklen6", "LKL_HIJACK_NET_NETMASK6_LEN"},
	{"ifgateway6", "LKL_HIJACK_NET_IFGATEWAY6"},
	{"mac", "LKL_HIJACK_NET_MAC"},
	{"mtu", "LKL_HIJACK_NET_MTU"},
	{"neigh", "LKL_HIJACK_NET_NEIGHBOR"},
	{"neigh", "LKL_HIJACK_NET_ARP"},
	{"qdisc", "LKL_HIJACK_NET_QDISC"},
	{"offload", "LKL_HIJACK_OFFLOAD"},
}

const (
	hijackFileVariable = "LKL_HIJACK_CONFIG_FILE"
	hijackTapVariable  = "LKL_HIJACK_NET_TAP" // older way to select the type tap
)

// hijackPart maps LKL's keys to the values in one object of the file.
type hijackPart struct {
	words map[string]Word
	from  Origin
}

// isHijack distinguishes LKL's file from lklrun's by keys that only LKL has.
func isHijack(root node) bool {
	members, err := root.members("")
	if err != nil {
		return false
	}
	own := []string{"gateway", "gateway6", "nameserver", "debug", "singlecpu", "boot_cmdline", "delay_main"}
	ownOfInterface := []string{"param", "masklen", "masklen6", "ipv6", "ifgateway", "ifgateway6"}
	both := 0 // number of keys that lklrun also has, with values in LKL's form
	for _, m := range members {
		if slices.Contains(own, m.name) {
			return true
		}
		switch m.name {
		case "sysctl", "mount", "dump":
			if m.isText() {
				both++
			}
		case "interfaces":
			for _, e := range m.elements() {
				keys, err := e.members("")
				if err == nil && slices.ContainsFunc(keys, func(k member) bool { return slices.Contains(ownOfInterface, k.name) }) {
					return true
				}
			}
		}
	}
	return both > 0 && both == len(members)
}

// readHijack reads LKL's file.
func readHijack(root node) (Layer, error) {
	const text = "a string"
	top := hijackPart{words: map[string]Word{}, from: root.origin()}
	var ifs []hijackPart
	members, err := root.members("an object")
	if err != nil {
		return Layer{}, err
	}
	for _, m := range members {
		if m.name == "interfaces" {
			for _, e := range m.elements() {
				one := hijackPart{words: map[string]Word{}, from: e.origin()}
				keys, err := e.members("an object")
				if err != nil {
					return Layer{}, err
				}
				for _, k := range keys {
					if !slices.ContainsFunc(hijackInterfaceKeys, func(h struct{ key, variable string }) bool { return h.key == k.name }) {
						return Layer{}, k.errorf("unknown LKL key; expected one of %s", hijackNames(hijackInterfaceKeys))
					}
					if err := one.take(k, text); err != nil {
						return Layer{}, err
					}
				}
				ifs = append(ifs, one)
			}
			continue
		}
		if !slices.ContainsFunc(hijackKeys, func(h struct{ key, variable string }) bool { return h.key == m.name }) {
			return Layer{}, m.errorf("unknown LKL key; expected one of interfaces, %s", hijackNames(hijackKeys))
		}
		if err := top.take(m, text); err != nil {
			return Layer{}, err
		}
	}
	return hijackLayer(top, ifs)
}

// take stores a member's value unless it is empty.
func (p *hijackPart) take(m member, want string) error {
	if m.isText() && m.v.Value.(interface{ String() string }).String() == "" {
		return nil
	}
	w, err := m.textOrNumber(want)
	if err == nil {
		p.words[m.name] = m.word(w)
	}
	return err
}

func hijackNames(keys []struct{ key, variable string }) string {
	var names []string
	for _, k := range keys {
		if !slices.Contains(names, k.key) {
			names = append(names, k.key)
		}
	}
	return strings.Join(names, ", ")
}

// HijackEnvironment reads the variables of LKL's hijack library.
func HijackEnvironment(environ []string) (Layer, error) {
	values := variables(environ)
	word := func(variable string) (Word, bool) {
		v := values[variable]
		return Word{v, Origin{Kind: FromLKL, Where: variable}}, v != ""
	}
	top, one := hijackPart{words: map[string]Word{}}, hijackPart{words: map[string]Word{}}
	for _, k := range slices.Backward(hijackKeys) {
		if w, ok := word(k.variable); ok {
			top.words[k.key] = w
		}
	}
	for _, k := range slices.Backward(hijackInterfaceKeys) {
		if w, ok := word(k.variable); ok {
			one.words[k.key] = w
		}
	}
	if w, ok := word(hijackTapVariable); ok {
		if _, newer := one.words["type"]; !newer {
			one.words["param"] = w
			w.Text = "tap"
			one.words["type"] = w
		}
	}
	var ifs []hijackPart
	if w, ok := one.words["type"]; ok {
		one.from = w.From
		ifs = []hijackPart{one}
	}
	l, err := hijackLayer(top, ifs)
	for k, w := range one.words {
		if len(ifs) == 0 && err == nil {
			l.Notes = append(l.Notes, fmt.Sprintf("%s: LKL_HIJACK_NET_IFTYPE names no interface, so %s has no effect", w.From.Where, k))
		}
	}
	if err == nil {
		for name, v := range values {
			if v != "" && strings.HasPrefix(name, "LKL_HIJACK_") && !knownHijack(name) {
				l.Notes = append(l.Notes, name+": unknown LKL variable; ignored")
			}
		}
	}
	slices.Sort(l.Notes)
	return l, err
}

// knownHijack reports whether lklrun supports one of LKL's variables.
func knownHijack(name string) bool {
	for _, k := range slices.Concat(hijackKeys, hijackInterfaceKeys) {
		if k.variable == name {
			return true
		}
	}
	return name == hijackFileVariable || name == hijackTapVariable
}
