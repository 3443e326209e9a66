// SPDX-License-Identifier: Apache-2.0

package counters

import (
	_ "embed" // embeds the explanations
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
)

// explainText explains each counter in a sentence. The explanations are based on RFC 4293
// (IP), 4022 (TCP), 4113 (UDP), include/uapi/linux/snmp.h, if_link.h, gen_stats.h and
// pkt_sched.h, net/mptcp/mib.h, the kernel code that increments the counters, and csrc/.
//
//go:embed explain.txt
var explainText string

// Explanation is the meaning of a counter.
type Explanation struct {
	Name    string   `json:"name"`              // counter name without index
	Meaning string   `json:"meaning"`           // description
	Kind    Kind     `json:"kind"`              // counter (only increases) or gauge (increases and decreases)
	Related []string `json:"related,omitempty"` // names of related counters
}

// explanations returns all explanations, sorted by name.
var explanations = sync.OnceValue(func() []Explanation {
	var all []Explanation
	for line := range strings.Lines(explainText) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || len(f) < 2 {
			continue
		}
		var related []string
		if len(f) > 2 {
			related = strings.Fields(f[2])
		}
		for _, name := range expand(f[0]) {
			all = append(all, Explanation{name, f[1], kindOf(name), related})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
})

// expand expands {a,b}x to ax and bx.
func expand(name string) []string {
	list, rest, ok := strings.Cut(strings.TrimPrefix(name, "{"), "}")
	if !ok {
		return []string{name}
	}
	var all []string
	for _, head := range strings.Split(list, ",") {
		all = append(all, head+rest)
	}
	return all
}

// Explain returns the explanation of a counter, given its name or its base.
func Explain(name string) (Explanation, bool) {
	all := explanations()
	for _, n := range []string{name, BaseOf(name)} {
		i, ok := slices.BinarySearchFunc(all, n, func(e Explanation, n string) int { return strings.Compare(e.Name, n) })
		if ok {
			return all[i], true
		}
	}
	return Explanation{}, false
}

// ExplainAll returns the explanations of all counters whose name matches one of the
// patterns. Without patterns it returns all explanations. A counter name with an
// interface or qdisc selects the explanation of its base.
func ExplainAll(patterns []string) []Explanation {
	var some []Explanation
	for _, e := range explanations() {
		if Match(e.Name, patterns) {
			some = append(some, e)
		}
	}
	for _, p := range patterns {
		if e, ok := Explain(p); ok && !slices.ContainsFunc(some, func(s Explanation) bool { return s.Name == e.Name }) {
			some = append(some, e)
		}
	}
	return some
}

// Match reports whether name matches one of patterns. Without patterns it returns true. A
// pattern without glob characters matches any part of the name; case does not matter.
func Match(name string, patterns []string) bool {
	name = strings.ToLower(name)
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		p = strings.ToLower(p)
		if !strings.ContainsAny(p, "*?[") {
			return strings.Contains(name, p)
		}
		ok, err := path.Match(p, name)
		return ok && err == nil // a malformed pattern matches nothing
	})
}
