// SPDX-License-Identifier: Apache-2.0

// Package egress counts what a program asked of a gateway with rules (--allow):
// the names that it queried, the destinations that it tried to reach, and
// whether the rules permitted them.
package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
)

// These limits keep an account below the size of one control message: the numbers
// of allowed and of refused names, and of allowed and of refused destinations, and
// the length of a name.
const (
	most       = 50
	ignoreMost = 2
	nameMost   = 100
)

// Account lists what a program asked for. Refused entries come first, then those
// with the highest counts.
type Account struct {
	Policy       string        `json:"policy,omitempty"` // file of the policy, or audit:FILE
	Rules        []Rule        `json:"rules"`            // all rules, in their order
	Names        []Name        `json:"names"`            // names that were queried
	Destinations []Destination `json:"destinations"`     // addresses that were contacted
	Allowed      Totals        `json:"allowed"`          // totals of everything, including entries that are not listed
	Refused      Totals        `json:"refused"`          // totals of refused queries and attempts
}

// Rule is a rule, with the decisions that it made. If several rules permit the same, the first
// one counts.
type Rule struct {
	Rule string `json:"rule"`           // as in --allow
	Sent uint64 `json:"sent,omitempty"` // bytes that the program has sent, if the rule limits them
	Totals
}

// Policy is a part of the rules of a run.
type Policy struct {
	File  string `json:"file,omitempty"`
	Total int    `json:"total"` // number of all rules
	Rules []Rule `json:"rules"`
}

// ErrNoRules reports that a run has no rules.
var ErrNoRules = errors.New("the run has no rules; start it with lklrun --egress FILE or --allow DESTINATION")

// Change is a change of the rules of a run, in the form of --allow.
type Change struct {
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Totals are numbers of queries and of connections.
type Totals struct {
	Queries     int64 `json:"queries"`     // name queries
	Connections int64 `json:"connections"` // TCP connections and UDP port pairs; refused: attempts
}

// Name is a queried name.
type Name struct {
	Name    string   `json:"name"`              // the name, in lower case, without the dot at the end
	Allowed bool     `json:"allowed"`           // the rules permit it
	Count   int64    `json:"count"`             // number of queries
	Reason  string   `json:"reason,omitempty"`  // why the query was refused
	Ignored []string `json:"ignored,omitempty"` // addresses in an answer that no name can permit
}

// Destination is an address that the program tried to reach.
type Destination struct {
	Protocol string `json:"protocol"`         // tcp, udp, icmp or the number of an IP protocol
	Address  string `json:"address"`          // the destination
	Port     uint16 `json:"port,omitempty"`   // port of TCP and UDP
	Allowed  bool   `json:"allowed"`          // the rules permit it
	Count    int64  `json:"count"`            // number of connections, or of attempts if refused
	Name     string `json:"name,omitempty"`   // the name whose answer permitted it
	Reason   string `json:"reason,omitempty"` // why it was refused
}

// String formats the destination for messages.
func (d *Destination) String() string {
	if d.Port == 0 {
		return d.Protocol + " " + d.Address
	}
	at := d.Address
	if strings.Contains(at, ":") {
		at = "[" + at + "]"
	}
	return fmt.Sprintf("%s %s:%d", d.Protocol, at, d.Port)
}

// Ledger keeps the account of a run.
type Ledger struct {
	mu      sync.Mutex
	names   map[nameKey]*Name
	places  map[placeKey]*Destination
	allowed part
	refused part
}

// part is the allowed part of an account, or the refused one.
type part struct {
	Totals
	names, places int // numbers of entries
}

type nameKey struct {
	name    string
	allowed bool
}

type placeKey struct {
	protocol string
	at       netip.AddrPort
	allowed  bool
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{names: map[nameKey]*Name{}, places: map[placeKey]*Destination{}}
}

// Query counts a query. It is refused if reason is not empty.
func (l *Ledger) Query(name, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(reason)
	p.Queries++
	k := nameKey{short(name), reason == ""}
	n := l.names[k]
	if n == nil {
		if p.names++; p.names > most {
			return
		}
		n = &Name{Name: k.name, Allowed: k.allowed, Reason: reason}
		l.names[k] = n
	}
	n.Count++
}

// Ignore records an address in the answer for a name that no name can permit.
func (l *Ledger) Ignore(name, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[nameKey{short(name), true}]
	if n == nil || len(n.Ignored) >= ignoreMost || slices.Contains(n.Ignored, address) {
		return
	}
	n.Ignored = append(n.Ignored, address)
}

// RecordAttempt counts an attempt to reach a destination. It is refused if reason is
// not empty.
func (l *Ledger) RecordAttempt(protocol string, at netip.AddrPort, name, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.part(reason)
	p.Connections++
	k := placeKey{protocol, at, reason == ""}
	d := l.places[k]
	if d == nil {
		if p.places++; p.places > most {
			return
		}
		d = &Destination{Protocol: protocol, Address: at.Addr().String(), Port: at.Port(), Allowed: k.allowed}
		l.places[k] = d
	}
	d.Count++
	d.Name, d.Reason = short(name), reason
}

func short(name string) string {
	if len(name) > nameMost {
		return name[:nameMost] + "..."
	}
	return name
}

func (l *Ledger) part(reason string) *part {
	if reason == "" {
		return &l.allowed
	}
	return &l.refused
}

// Account returns the present account.
func (l *Ledger) Account() Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := Account{Names: []Name{}, Destinations: []Destination{}, Allowed: l.allowed.Totals, Refused: l.refused.Totals}
	for _, n := range l.names {
		one := *n
		one.Ignored = slices.Clone(n.Ignored)
		a.Names = append(a.Names, one)
	}
	for _, d := range l.places {
		a.Destinations = append(a.Destinations, *d)
	}
	sort.Slice(a.Names, func(i, j int) bool {
		x, y := &a.Names[i], &a.Names[j]
		return cmp.Or(refusedFirst(x.Allowed, y.Allowed), cmp.Compare(y.Count, x.Count), cmp.Compare(x.Name, y.Name)) < 0
	})
	sort.Slice(a.Destinations, func(i, j int) bool {
		x, y := &a.Destinations[i], &a.Destinations[j]
		return cmp.Or(refusedFirst(x.Allowed, y.Allowed), cmp.Compare(y.Count, x.Count), cmp.Compare(x.String(), y.String())) < 0
	})
	return a
}

func refusedFirst(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

// summaryMost is the maximum number of refused names and destinations in a
// summary.
const summaryMost = 10

// Summary describes the account in at most two lines.
func (a *Account) Summary() []string {
	lines := []string{fmt.Sprintf("allowed: %s, %s; refused: %s, %s",
		count(a.Allowed.Queries, "query", "queries"), count(a.Allowed.Connections, "connection", "connections"),
		count(a.Refused.Queries, "query", "queries"), count(a.Refused.Connections, "connection", "connections"))}
	var refused []string
	for n := range a.Names {
		if x := &a.Names[n]; !x.Allowed {
			refused = append(refused, times(x.Name, x.Count))
		}
	}
	for n := range a.Destinations {
		if x := &a.Destinations[n]; !x.Allowed {
			refused = append(refused, times(x.String(), x.Count))
		}
	}
	if len(refused) == 0 {
		return lines
	}
	rest := ""
	if len(refused) > summaryMost {
		rest = fmt.Sprintf(" and %d more", len(refused)-summaryMost)
		refused = refused[:summaryMost]
	}
	return append(lines, "refused: "+strings.Join(refused, ", ")+rest)
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func times(what string, n int64) string {
	if n == 1 {
		return what
	}
	return fmt.Sprintf("%s (%d times)", what, n)
}
