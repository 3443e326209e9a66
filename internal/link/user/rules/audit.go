// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/pkg/config"
)

// Audit collects what a program reaches, for a policy that permits exactly this. Rules with an
// Audit permit everything.
type Audit struct {
	File *os.File // receives the policy at the end

	mu      sync.Mutex
	names   map[string]bool // names that resolved
	reached map[reached]int // how many flows reached it
	outside map[string]bool // what no policy permits
	full    bool            // there was more than a policy can hold
}

// reached is what a rule of the policy permits: a destination by its name, or by its address if
// there is no name.
type reached struct {
	name     string
	addr     netip.Addr
	protocol string
	port     uint16
}

// NewAudit returns an audit that writes the policy to a file.
func NewAudit(file *os.File) *Audit {
	return &Audit{File: file, names: map[string]bool{}, reached: map[reached]int{}, outside: map[string]bool{}}
}

// add records something, unless there is already too much.
func add[K comparable, V any](a *Audit, all map[K]V, key K, value V) {
	if _, found := all[key]; !found && len(a.names)+len(a.reached)+len(a.outside) >= config.MaxPolicy {
		a.full = true
		return
	}
	all[key] = value
}

func (a *Audit) resolved(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add(a, a.names, name, true)
}

func (a *Audit) cannot(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add(a, a.outside, what, true)
}

// keys returns what permits a flow: each of its names, or its address.
func keys(protocol string, names []string, to netip.AddrPort) []reached {
	if len(names) == 0 {
		return []reached{{addr: to.Addr(), protocol: protocol, port: to.Port()}}
	}
	var all []reached
	for _, name := range names {
		all = append(all, reached{name: name, protocol: protocol, port: to.Port()})
	}
	return all
}

func (a *Audit) opened(protocol string, names []string, to netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range keys(protocol, names, to) {
		add(a, a.reached, k, a.reached[k]+1)
	}
}

// said corrects opened after the program has said names. If a policy would refuse them, as the
// reason says, only a rule for the address permits the flow.
func (a *Audit) said(f *Flow, names []string, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(f.names, name) })
	if reason == "" && len(names) == 0 {
		return // only an address
	}
	if reason != "" {
		names = nil
	}
	for _, k := range keys(f.protocol, f.names, f.to) {
		if a.reached[k] > 0 {
			a.reached[k]--
		}
	}
	for _, k := range keys(f.protocol, names, f.to) {
		add(a, a.reached, k, a.reached[k]+1)
	}
}

// audited permits a destination, and names what has resolved to it.
func (r *Rules) audited(protocol string, to netip.AddrPort) verdict {
	a := to.Addr()
	if r.special(a) != "" || r.routed(protocol, netip.AddrPort{}, to) != "" {
		return verdict{rule: none} // only a rule for its address permits it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v, now := verdict{rule: none}, r.Now()
	for _, g := range slices.Backward(slices.Concat(r.fixed[a], r.grants[a])) {
		if (g.expires.IsZero() || now.Before(g.expires)) && !slices.Contains(v.names, g.name) {
			v.names = append(v.names, g.name)
		}
	}
	return v
}

// write writes the policy, and returns the line for the user.
func (a *Audit) write() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.File.Close()
	rules, connected := []string{}, map[string]bool{}
	for k, flows := range a.reached {
		rule := config.Allow{Name: k.name, Port: k.port, Protocol: k.protocol}
		if k.name == "" {
			rule.Prefix = netip.PrefixFrom(k.addr, k.addr.BitLen())
		}
		if _, err := config.ParseAllow(rule.String()); err != nil || k.name == "" && never(k.addr) {
			a.outside[k.protocol+" "+rule.String()] = true
		} else if flows > 0 {
			connected[k.name] = true
			rules = append(rules, rule.String())
		}
	}
	for name := range a.names {
		rule := config.Allow{Name: name, Protocol: "dns"}
		if _, err := config.ParseAllow(rule.String()); err != nil {
			a.outside["the name "+name] = true
		} else if !connected[name] {
			rules = append(rules, rule.String())
		}
	}
	slices.Sort(rules)
	var b strings.Builder
	b.WriteString("// Written by lklrun --egress audit: what the program reached. Review it before use.\n")
	for _, what := range slices.Sorted(maps.Keys(a.outside)) {
		b.WriteString("// No policy permits this: " + what + "\n")
	}
	if a.full {
		b.WriteString("// INCOMPLETE: there were too many destinations.\n")
	}
	b.WriteString("{\n  \"allow\": [\n")
	for _, rule := range rules {
		b.WriteString("    \"" + rule + "\",\n") // contains no character that JSON escapes
	}
	b.WriteString("  ]\n}\n")
	err := a.File.Truncate(0)
	if err == nil || errors.Is(err, unix.EINVAL) { // a pipe
		_, err = io.WriteString(a.File, b.String())
	}
	if err != nil {
		return "writing the policy: " + err.Error()
	}
	line := fmt.Sprintf("wrote a policy with %d rules to %s; review it before use", len(rules), a.File.Name())
	if a.full {
		line += ": it is incomplete, because there were too many destinations"
	}
	return line
}
