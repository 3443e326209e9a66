// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// hijackLayer translates LKL's configuration to lklrun's settings.
func hijackLayer(top hijackPart, parts []hijackPart) (Layer, error) {
	h := hijack{top: top}
	for _, p := range parts {
		i, err := h.hijackInterface(p)
		if err != nil {
			return Layer{}, err
		}
		h.ifs = append(h.ifs, i)
	}
	for _, step := range []func() error{h.cmdline, h.gateways, h.simple, h.sysctls} {
		if err := step(); err != nil {
			return Layer{}, err
		}
	}
	var words []Word
	for n := range h.ifs {
		if err := h.ifs[n].check(); err != nil {
			at := parts[n].from
			if w, ok := parts[n].words[hijackKeyOf(err.Key)]; ok {
				at = w.From
			}
			return Layer{}, at.Wrap(err.Err)
		}
		words = append(words, Word{h.ifs[n].String(), parts[n].from})
	}
	if len(words) > MaxInterfaces {
		return Layer{}, words[MaxInterfaces].From.Wrap(fmt.Errorf("%d interfaces; the limit is %d", len(words), MaxInterfaces))
	}
	if len(words) > 0 {
		h.l.set("interfaces", words...)
	}
	return h.l, nil
}

// hijackVariable returns the variable of one of LKL's interface keys.
func hijackVariable(key string) string {
	for _, k := range hijackInterfaceKeys {
		if k.key == key {
			return k.variable
		}
	}
	return key
}

// hijackKeyOf returns LKL's name of an interface key.
func hijackKeyOf(key string) string {
	for own, lkl := range map[string]string{"ip6": "ipv6", "gw": "ifgateway", "gw6": "ifgateway6"} {
		if key == own {
			return lkl
		}
	}
	return key
}

// hijack is the state of a translation from LKL's configuration.
type hijack struct {
	top hijackPart
	ifs []Interface
	l   Layer
}

func (h *hijack) note(w Word, key, format string, args ...any) {
	at := w.From.String()
	if w.From.Path != "" {
		at += ": " + w.From.Path
	} else {
		at += " (" + key + ")"
	}
	h.l.Notes = append(h.l.Notes, at+": "+fmt.Sprintf(format, args...))
}

func (h *hijack) hijackInterface(p hijackPart) (Interface, error) {
	var i Interface
	typ, ok := p.words["type"]
	if !ok {
		return i, p.from.Wrap(fmt.Errorf("has no type; expected tap, macvtap, raw or raw-ipenc"))
	}
	param, ok := p.words["param"]
	if !ok {
		return i, p.from.Wrap(fmt.Errorf("has no param, which the type %s requires", typ.Text))
	}
	own := slices.IndexFunc(interfaceTypes, func(t *Type) bool { return t.Hijack != "" && t.Hijack == typ.Text })
	switch {
	case slices.Contains([]string{"vde", "pipe", "dpdk"}, typ.Text):
		return i, typ.From.Wrap(fmt.Errorf("%q: lklrun does not support this type; use tap, macvtap or raw, or pass a descriptor with --if fd:N", typ.Text))
	case own < 0:
		return i, typ.From.Wrap(fmt.Errorf("%q: unknown LKL type; expected tap, macvtap, raw or raw-ipenc", typ.Text))
	}
	if err := i.setTarget(interfaceTypes[own].Name + ":" + param.Text); err != nil {
		return i, param.From.Wrap(err)
	}
	for _, a := range []struct{ ip, mask, key string }{{"ip", "masklen", "ip"}, {"ipv6", "masklen6", "ip6"}} {
		ip, given := p.words[a.ip]
		mask, masked := p.words[a.mask]
		if given != masked {
			if p.from.Path == "" { // the configuration is from variables
				has, lacks := a.ip, a.mask
				if masked {
					has, lacks = lacks, has
				}
				return i, p.words[has].From.Wrap(fmt.Errorf("requires %s, which is missing; set both", hijackVariable(lacks)))
			}
			return i, p.from.Wrap(fmt.Errorf("has only one of %s and %s; set both", a.ip, a.mask))
		}
		if !given {
			continue
		}
		if n, err := strconv.Atoi(mask.Text); err != nil || n < 1 || n > 128 {
			return i, mask.From.Wrap(fmt.Errorf("%q is not a prefix length", mask.Text))
		}
		if err := findKey(a.key).set(&i, ip.Text+"/"+mask.Text); err != nil {
			return i, ip.From.Wrap(err)
		}
	}
	for _, k := range []struct{ lkl, key string }{{"ifgateway", "gw"}, {"ifgateway6", "gw6"}, {"mac", "mac"}, {"mtu", "mtu"}} {
		if w, ok := p.words[k.lkl]; ok {
			if err := findKey(k.key).set(&i, w.Text); err != nil {
				return i, w.From.Wrap(err)
			}
		}
	}
	return i, h.hijackLists(&i, p)
}

// hijackLists translates the keys whose values have a special form: neigh, qdisc
// and offload.
func (h *hijack) hijackLists(i *Interface, p hijackPart) error {
	if w, ok := p.words["neigh"]; ok {
		for _, f := range fields(w.Text, ";") {
			if err := findKey("neigh").set(i, f); err != nil {
				return w.From.Wrap(err)
			}
		}
	}
	if w, ok := p.words["qdisc"]; ok {
		all := fields(w.Text, ";")
		for _, f := range all {
			parent, kind, ok := strings.Cut(f, "|")
			if !ok || parent != "root" || len(all) > 1 {
				return w.From.Wrap(fmt.Errorf("%q; expected a root queueing discipline, such as root|fq", w.Text))
			}
			if err := setQdisc(i, kind); err != nil {
				return w.From.Wrap(err)
			}
		}
	}
	if w, ok := p.words["offload"]; ok {
		n, err := strconv.ParseUint(w.Text, 0, 64)
		if err != nil {
			return w.From.Wrap(fmt.Errorf("%q; expected a mask of virtio features, such as 0x883", w.Text))
		}
		i.Offload = "off"
		if n != 0 {
			i.Offload = "0x" + strconv.FormatUint(n, 16)
		}
	}
	return nil
}

// cmdline extracts the kernel parameters that are settings in lklrun.
func (h *hijack) cmdline() error {
	w, ok := h.top.words["boot_cmdline"]
	if !ok {
		return nil
	}
	var rest []string
	for _, p := range strings.Fields(w.Text) {
		name, value, _ := strings.Cut(p, "=")
		switch {
		case name == "mem":
			h.l.set("mem", Word{value, w.From})
			if _, err := ParseMem(value); err != nil {
				return w.From.Wrap(fmt.Errorf("mem: %w", err))
			}
		case name == "ip" && (slices.Contains([]string{"dhcp", "on", "any"}, value) || strings.HasSuffix(value, ":dhcp")):
			for n := range h.ifs {
				if len(h.ifs[n].IP) == 0 {
					h.ifs[n].DHCP = true
				}
			}
		case name == "ip":
			return w.From.Wrap(fmt.Errorf("%q: only ip=dhcp is supported here; set ip of the interface instead", p))
		default:
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	c := Word{strings.Join(rest, " "), w.From}
	h.l.set("cmdline", c)
	return w.From.Wrap(addCmdline(&Run{}, c.Text))
}

// gateways assigns the default gateways to the interfaces that reach them. LKL uses
// the default gateways only in the main routing table, and ifgateway in the
// interface's own table.
func (h *hijack) gateways() error {
	for _, g := range []struct {
		key string
		six bool
		gw  func(i *Interface) *netip.Addr
		ips func(i *Interface) []netip.Prefix
	}{
		{"gateway", false, func(i *Interface) *netip.Addr { return &i.GW }, func(i *Interface) []netip.Prefix { return i.IP }},
		{"gateway6", true, func(i *Interface) *netip.Addr { return &i.GW6 }, func(i *Interface) []netip.Prefix { return i.IP6 }},
	} {
		w, ok := h.top.words[g.key]
		if !ok {
			continue
		}
		var a netip.Addr
		if err := setGateway(&a, w.Text, g.six); err != nil {
			return w.From.Wrap(err)
		}
		if slices.ContainsFunc(h.ifs, func(i Interface) bool { return *g.gw(&i) == a }) {
			continue
		}
		n := slices.IndexFunc(h.ifs, func(i Interface) bool {
			return slices.ContainsFunc(g.ips(&i), func(p netip.Prefix) bool { return p.Contains(a) || a.IsLinkLocalUnicast() })
		})
		if n < 0 {
			h.note(w, g.key, "%s is not in the network of any interface; ignored", a)
			continue
		}
		gw := g.gw(&h.ifs[n])
		if gw.IsValid() {
			h.note(w, g.key, "interfaces[%d] has its own gateway %s, which takes precedence", n, *gw)
			continue
		}
		*gw = a
	}
	return nil
}

// simple translates the keys that correspond to one setting or to none.
func (h *hijack) simple() error {
	number := func(key string) (uint64, Word, error) {
		w, ok := h.top.words[key]
		if !ok {
			return 0, w, nil
		}
		n, err := strconv.ParseUint(w.Text, 0, 64)
		if err != nil {
			err = w.From.Wrap(fmt.Errorf("%q; expected a number", w.Text))
		}
		return n, w, err
	}
	debug, w, err := number("debug")
	if err != nil {
		return err
	}
	if debug != 0 {
		h.l.set("verbose", Word{"on", w.From})
	}
	if debug&0x300 != 0 {
		h.note(w, "debug", "the bits 0x300, which make LKL wait at the start and end, have no effect here; use lklctl while the program runs")
	}
	cpu, w, err := number("singlecpu")
	if err != nil {
		return err
	}
	if cpu != 0 {
		h.note(w, "singlecpu", "has no effect here, because the stack's kernel has one CPU; use taskset(1) to choose the host's CPUs")
	}
	delay, w, err := number("delay_main")
	if err != nil {
		return err
	}
	if delay > MaxDelay {
		return w.From.Wrap(fmt.Errorf("%q; expected microseconds, at most %d", w.Text, MaxDelay))
	}
	if delay != 0 {
		h.l.set("delay", Word{strconv.FormatUint(delay, 10), w.From})
	}
	for _, k := range []struct {
		lkl, key string
		parse    func(string) error
	}{
		{"nameserver", "dns", func(s string) error { _, err := ParseDNS(s); return err }},
		{"mount", "mount", func(s string) error { _, err := parseFSType(s); return err }},
		{"dump", "dump", func(s string) error { _, err := parseStackPath(s); return err }},
	} {
		w, ok := h.top.words[k.lkl]
		if !ok {
			continue
		}
		var words []Word
		for _, f := range fields(w.Text, ",") {
			if err := k.parse(f); err != nil {
				return w.From.Wrap(err)
			}
			words = append(words, Word{f, w.From})
		}
		h.l.set(k.key, words...)
	}
	return nil
}

// sysctls reads NAME=VALUE;NAME=VALUE. LKL ignores settings that its kernel lacks.
// The text can contain quotes that the shell has not removed.
func (h *hijack) sysctls() error {
	w, ok := h.top.words["sysctl"]
	if !ok {
		return nil
	}
	var words []Word
	for _, f := range fields(w.Text, ";") {
		name, value, _ := strings.Cut(f, "=")
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		s, err := ParseSysctl(name + "=" + value)
		if err != nil {
			return w.From.Wrap(err)
		}
		s.Optional = true
		words = append(words, Word{s.String(), w.From})
	}
	h.l.set("sysctl", words...)
	return nil
}
