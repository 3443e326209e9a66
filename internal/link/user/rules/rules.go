// SPDX-License-Identifier: Apache-2.0

// Package rules decides which destinations a program may reach through the
// user-mode gateway (--allow, --egress). Everything else is refused.
//
// A rule for a prefix permits the addresses of the prefix. A rule for a name
// permits the addresses in the answers to queries for this name, for the lifetime
// of each answer, and the addresses of this name in /etc/hosts and --add-host. Only
// queries through the gateway's own name server count. The gateway forwards no query
// for another name.
//
// The rules know nothing about packets. The gateway calls Refuse for each new
// flow, and Open before it opens a socket of the host.
package rules

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/pkg/config"
)

const (
	// leastLifetime is the minimum time for which an answer permits its
	// addresses. A program needs some time between the answer and its
	// connection, also if the answer has the lifetime 0.
	leastLifetime = 30 * time.Second
	// mostLifetime bounds the lifetime that a name server can choose.
	mostLifetime = 24 * time.Hour

	// maxGrants is the maximum number of addresses that answers permit at
	// the same time. Beyond it, those that expire first are dropped.
	maxGrants = 4096

	// maxNames is the maximum number of names for which answers permit one address. Beyond
	// it, the one that was resolved first is dropped.
	maxNames = 256

	// maxLines is the maximum number of refusals that are reported to the
	// user. The others are only counted.
	maxLines = 50
)

// Options are the parameters of Rules.
type Options struct {
	Allow  []config.Allow    // at the start
	Policy bool              // there is a policy file (--egress), for messages
	Log    *egress.Log       // receives each decision, and is closed with the rules; may be nil
	Audit  *Audit            // nil: the rules apply
	Names  []config.HostName // the addresses of names that need no query: those of /etc/hosts
	Nets   []netip.Prefix    // the gateway's own networks
	Hosts  []netip.Addr      // addresses that stand for the host's loopback addresses

	// RouteType returns the type of the host's route to a destination (netdev.RouteType).
	RouteType func(protocol string, from, to netip.AddrPort) (kind uint8, err error)
	// Notify prints a line for the user. It may block.
	Notify func(string)
	Now    func() time.Time
}

// Rules are the rules of one gateway, with the addresses that they permit now.
type Rules struct {
	Options
	ledger *egress.Ledger
	find   atomic.Pointer[egress.Finder]

	mu     sync.Mutex
	list   atomic.Pointer[[]rule] // changed under mu
	grants map[netip.Addr][]grant
	fixed  map[netip.Addr][]grant // of Names

	quicMu sync.Mutex
	quic   map[quicID]*quicConn // connections that the program has begun

	lines   chan string // refusals for the user
	done    chan struct{}
	printed map[string]bool
	over    bool
}

// rule is a rule, which keeps its index after its removal.
type rule struct {
	config.Allow
	removed bool
	used    *use
}

// use counts what a rule has permitted.
type use struct{ queries, connections, sent atomic.Uint64 }

// take counts a connection. The result is false if the rule permits no more of them.
func (r rule) take() bool {
	for {
		n := r.used.connections.Load()
		if r.Connections != 0 && n >= r.Connections {
			return false
		}
		if r.used.connections.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// spend counts bytes. The result is false if the rule permits no more of them.
func (r rule) spend(n int) bool {
	return r.Sent == 0 || r.used.sent.Add(uint64(n)) <= r.Sent
}

// spent returns the reason for which a rule permits nothing more, or an empty string.
func (r rule) spent() string {
	switch {
	case r.Connections != 0 && r.used.connections.Load() >= r.Connections:
		return fmt.Sprintf("the rule %s permits no more connections", r)
	case r.Sent != 0 && r.used.sent.Load() >= r.Sent:
		return fmt.Sprintf("the rule %s permits no more bytes", r)
	}
	return ""
}

// maxRules is the maximum number of rules, with those that were removed.
const maxRules = 16 * config.MaxPolicy

// all returns the rules. The caller must not change them.
func (r *Rules) all() []rule { return *r.list.Load() }

// grant permits an address, because an allowed name resolved to it.
type grant struct {
	rule    int // index in the list of rules
	name    string
	expires time.Time // zero: never
}

// New returns rules, which must be closed.
func New(o Options) *Rules {
	r := &Rules{
		Options: o, ledger: egress.NewLedger(), grants: map[netip.Addr][]grant{}, fixed: map[netip.Addr][]grant{},
		quic: map[quicID]*quicConn{}, printed: map[string]bool{},
		lines: make(chan string, maxLines+1), done: make(chan struct{}),
	}
	var list []rule
	for _, a := range o.Allow {
		list = append(list, rule{Allow: a, used: &use{}})
	}
	r.list.Store(&list)
	for _, h := range o.Names {
		for _, n := range r.matching(h.Name) {
			r.fixed[h.Addr.Unmap()] = append(r.fixed[h.Addr.Unmap()], grant{rule: n, name: h.Name})
		}
	}
	go func() {
		defer close(r.done)
		for line := range r.lines {
			r.Notify(line)
		}
	}()
	return r
}

// matching returns the rules that match a name. An audit needs none, so it returns none.
func (r *Rules) matching(name string) (all []int) {
	if r.Audit != nil {
		return []int{none}
	}
	for n, rule := range r.all() {
		if !rule.removed && rule.Matches(name) {
			all = append(all, n)
		}
	}
	return all
}

// closeLimit bounds the wait for a terminal that accepts no output.
const closeLimit = 2 * time.Second

// Close prints the remaining refusals and a summary.
func (r *Rules) Close() {
	r.mu.Lock()
	over := r.over
	r.over = true
	r.mu.Unlock()
	if over {
		return
	}
	close(r.lines)
	if r.Log != nil {
		r.Log.Close()
	}
	a := r.Account()
	last := a.Summary()
	if r.Audit != nil {
		last = append(last, r.Audit.write())
	}
	select {
	case <-r.done:
	case <-time.After(closeLimit):
		return
	}
	for _, line := range last {
		r.Notify(line)
	}
}

// Account returns what the program has asked for so far.
func (r *Rules) Account() egress.Account { return r.ledger.Account() }

// ruleMost is the maximum number of rules in one answer, because a control message has no room
// for more.
const ruleMost = 100

// Part returns some of the rules, from an index on.
func (r *Rules) Part(from int) egress.Policy {
	p := egress.Policy{Rules: []egress.Rule{}}
	for _, rule := range r.all() {
		if rule.removed {
			continue
		}
		if p.Total++; p.Total > from && len(p.Rules) < ruleMost {
			p.Rules = append(p.Rules, egress.Rule{
				Rule: rule.String(), Sent: rule.used.sent.Load(),
				Totals: egress.Totals{Queries: int64(rule.used.queries.Load()), Connections: int64(rule.used.connections.Load())},
			})
		}
	}
	return p
}

// Change adds and removes rules, all of them or none. A new rule permits what its names have
// resolved to. Flows that exist continue without the rule that permitted them.
func (r *Rules) Change(add, remove []config.Allow) error {
	if r.Audit != nil {
		return errors.New("an audit permits everything")
	}
	r.mu.Lock()
	list := slices.Clone(r.all())
	find := func(a config.Allow) int {
		return slices.IndexFunc(list, func(rule rule) bool { return !rule.removed && rule.Allow == a })
	}
	var gone []int
	for _, a := range remove {
		n := find(a)
		if n == none {
			r.mu.Unlock()
			return fmt.Errorf("there is no rule %s; lklctl egress lists the rules", a)
		}
		for ; n != none; n = find(a) { // a policy can contain it twice
			list[n].removed = true
			gone = append(gone, n)
		}
	}
	first := len(list)
	for _, a := range add {
		if find(a) == none {
			list = append(list, rule{Allow: a, used: &use{}})
		}
	}
	if len(list) > maxRules {
		r.mu.Unlock()
		return fmt.Errorf("more than %d rules, with those that were removed; start the run again", maxRules)
	}
	r.list.Store(&list)
	for _, grants := range []map[netip.Addr][]grant{r.fixed, r.grants} {
		for a, all := range grants {
			for _, g := range all {
				for n := first; n < len(list); n++ {
					same := func(x grant) bool { return x.rule == n && x.name == g.name }
					if len(all) < maxNames && list[n].Matches(g.name) && !slices.ContainsFunc(all, same) {
						all = append(all, grant{n, g.name, g.expires})
					}
				}
			}
			grants[a] = slices.DeleteFunc(all, func(g grant) bool { return slices.Contains(gone, g.rule) })
			if len(grants[a]) == 0 {
				delete(grants, a)
			}
		}
	}
	r.mu.Unlock()
	for _, n := range gone {
		r.changed(list[n].Allow, "removed")
	}
	for _, rule := range list[first:] {
		r.changed(rule.Allow, "added")
	}
	return nil
}

// changed logs a change of the rules.
func (r *Rules) changed(a config.Allow, what string) {
	if r.Log != nil {
		r.Log.Add(egress.Decision{Time: r.Now(), Verdict: what, Rule: a.String()})
	}
	go r.Notify(what + " the rule " + a.String()) // may block
}

// DeniedError reports that the rules do not permit a destination.
type DeniedError struct {
	To     string
	Reason string
}

// Error names the destination and the reason.
func (e *DeniedError) Error() string { return "refused " + e.To + ": " + e.Reason }

// Socket is a socket of the stack, by its protocol and addresses.
type Socket struct {
	Protocol string
	From, To netip.AddrPort // From: invalid if it is unknown
}

func (s Socket) plain() Socket {
	s.From = netip.AddrPortFrom(s.From.Addr().Unmap(), s.From.Port())
	s.To = netip.AddrPortFrom(s.To.Addr().Unmap(), s.To.Port())
	return s
}

// Refuse checks the destination of a new flow. The result is nil if it is permitted. Otherwise
// it is a function that counts the refusal, and reports it to the user once. If Logs is true,
// this function waits for the stack.
func (r *Rules) Refuse(s Socket) (report func() error) {
	s = s.plain()
	v := r.check(s.Protocol, s.To)
	if v.reason == "" {
		return nil
	}
	return func() error { return r.refused(s, v.reason) }
}

// Open checks a destination, as Refuse does, and counts it. If Logs is true, it waits for the
// stack.
func (r *Rules) Open(s Socket) (*Flow, error) {
	s = s.plain()
	v := r.check(s.Protocol, s.To)
	f := &Flow{rules: r, socket: s, protocol: s.Protocol, to: s.To, names: v.names}
	if v.reason == "" && v.rule != none {
		if f.rule = r.all()[v.rule]; !f.rule.take() {
			v.reason = f.rule.spent()
		}
	}
	if v.reason != "" {
		return nil, r.refused(s, v.reason)
	}
	if r.Audit != nil {
		r.Audit.opened(s.Protocol, v.names, s.To)
	}
	r.ledger.RecordAttempt(s.Protocol, s.To, v.name(), "")
	r.log(s, s.Protocol, v.name(), s.To, v.rule, "")
	return f, nil
}

// Logs reports whether decisions are logged, with the processes that caused them.
func (r *Rules) Logs() bool { return r.Log != nil }

// NameProcesses sets the function that finds the processes of sockets.
func (r *Rules) NameProcesses(find egress.Finder) { r.find.Store(&find) }

// nameProcesses adds the processes that have a socket open to a decision.
func (r *Rules) nameProcesses(d *egress.Decision, s Socket) {
	find := r.find.Load()
	if !s.From.IsValid() || find == nil {
		d.Unknown = "which socket caused this is unknown"
		return
	}
	var err error
	if d.Processes, err = (*find)(s.Protocol, s.From, s.To); err != nil {
		d.Processes, d.Unknown = nil, err.Error()
	}
}

// log counts a query for its rule, and passes a decision to the log. An invalid destination means
// that there is none. s is the socket that caused the decision.
func (r *Rules) log(s Socket, protocol, name string, to netip.AddrPort, rule int, reason string) {
	if rule != none && protocol == "dns" {
		r.all()[rule].used.queries.Add(1)
	}
	if r.Log == nil {
		return
	}
	d := egress.Decision{Time: r.Now(), Protocol: protocol, Name: name, Port: to.Port(), Verdict: "allowed", Reason: reason}
	if to.Addr().IsValid() {
		d.Address = to.Addr().String()
	}
	if reason != "" {
		d.Verdict = "refused"
	} else if rule == none {
		d.Rule = "audit"
	} else {
		d.Rule = r.all()[rule].String()
	}
	r.nameProcesses(&d, s)
	r.Log.Add(d)
}

// Connected checks the route of a connected socket before it sends data: the route may
// differ from the one that Open saw, because of a rule for source ports, or of a change. from is
// the host's address.
func (r *Rules) Connected(s Socket, from netip.AddrPort) error {
	s = s.plain()
	if reason := r.routed(s.Protocol, from, s.To); reason != "" && r.Audit == nil {
		return r.refused(s, reason)
	}
	return nil
}

// Other refuses a packet that is neither TCP nor UDP.
func (r *Rules) Other(protocol string, to netip.Addr) {
	if r.Audit != nil {
		r.Audit.cannot(protocol + " " + to.Unmap().String())
		r.log(Socket{}, protocol, "", netip.AddrPortFrom(to.Unmap(), 0), none, "")
		return
	}
	_ = r.refused(Socket{Protocol: protocol, To: netip.AddrPortFrom(to.Unmap(), 0)}, "only TCP and UDP can be allowed")
}

func (r *Rules) refused(s Socket, reason string) error {
	d := egress.Destination{Protocol: s.Protocol, Address: s.To.Addr().String(), Port: s.To.Port()}
	err := &DeniedError{d.String(), reason}
	r.ledger.RecordAttempt(s.Protocol, s.To, "", reason)
	r.log(s, s.Protocol, "", s.To, none, reason)
	r.say(err.Error())
	return err
}

// say passes a line to the user once, without waiting.
func (r *Rules) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.printed[line] || len(r.printed) > maxLines {
		return
	}
	if r.printed[line] = true; len(r.printed) > maxLines {
		line = "further refusals are only counted; lklctl egress shows them"
	}
	r.lines <- line // has room for all lines
}

// nameServerPorts are ports of name servers: DNS, and DNS over TLS or QUIC.
var nameServerPorts = map[uint16]bool{53: true, 853: true}

// none is the index of no rule.
const none = -1

// verdict is a decision about a destination.
type verdict struct {
	rule   int      // the rule that permits it, or none
	names  []string // the names whose answers permit it; empty: a rule for its address does
	reason string   // why it is refused; empty: it is permitted
}

// name returns the name that led to the destination, if one did.
func (v *verdict) name() string {
	if len(v.names) == 0 {
		return ""
	}
	return v.names[0]
}

// check decides about a destination.
func (r *Rules) check(protocol string, to netip.AddrPort) verdict {
	a := to.Addr()
	if !a.IsValid() || a.Zone() != "" {
		return verdict{rule: none, reason: "not a valid address"}
	}
	if r.Audit != nil {
		return r.audited(protocol, to)
	}
	v := r.byAddress(func(rule rule) bool { return rule.isExact(protocol, to) })
	if v.rule == none {
		if reason := r.special(a); reason != "" {
			return verdict{rule: none, reason: cmp.Or(v.reason, reason)}
		}
		v = r.byAddress(func(rule rule) bool {
			return rule.Name == "" && rule.Prefix.Contains(a) && rule.Permits(protocol, to.Port())
		})
	}
	if v.rule == none {
		spent := v.reason
		if v = r.allowedBy(protocol, to); v.rule == none {
			v.reason = cmp.Or(spent, v.reason)
		}
	}
	if v.reason == "" {
		v.reason = r.routed(protocol, netip.AddrPort{}, to)
	}
	return v
}

// byAddress decides by the rules for addresses that the function selects.
func (r *Rules) byAddress(selects func(rule) bool) verdict {
	v := verdict{rule: none}
	for n, rule := range r.all() {
		if rule.removed || !selects(rule) {
			continue
		}
		if v.reason = rule.spent(); v.reason == "" {
			v.rule = n
			break
		}
	}
	return v
}

// isExact reports whether the rule names exactly this address. Such a rule also permits an
// address of this machine.
func (r rule) isExact(protocol string, to netip.AddrPort) bool {
	return !never(to.Addr()) && r.Name == "" && r.Prefix.IsSingleIP() && r.Prefix.Addr() == to.Addr() && r.Permits(protocol, to.Port())
}

// never reports whether no rule permits an address.
func never(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) ||
		a.Is4() && a.As4()[0] == 0
}

// special returns the reason for which only a rule for exactly this address can
// permit it, or an empty string.
func (r *Rules) special(a netip.Addr) string {
	for _, h := range r.Hosts {
		if h == a {
			return fmt.Sprintf("it stands for a loopback address of this machine, which only --allow %s permits", a)
		}
	}
	for _, n := range r.Nets {
		if n.Contains(a) {
			return "it is in the gateway's own network"
		}
	}
	switch {
	case a.IsLoopback() || a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return "it is an address of this machine"
	case never(a):
		return "it is a multicast or broadcast address"
	case a.IsLinkLocalUnicast():
		return fmt.Sprintf("it is a link-local address, which only --allow %s permits", a)
	}
	return ""
}

// routed returns the reason for which a destination is refused because of its route, or an
// empty string. Without a route, the host refuses to send.
func (r *Rules) routed(protocol string, from, to netip.AddrPort) string {
	if slices.Contains(r.Hosts, to.Addr()) {
		return "" // has no route on this machine
	}
	exact := slices.ContainsFunc(r.all(), func(rule rule) bool { return !rule.removed && rule.isExact(protocol, to) })
	for at := to; at.IsValid(); at = netip.AddrPortFrom(embedded(at.Addr()), 0) {
		if at != to {
			protocol, from = "", netip.AddrPort{}
		}
		switch kind, err := r.RouteType(protocol, from, at); {
		case err != nil:
			return "whether it is an address of this machine is unknown: " + err.Error()
		case kind == unix.RTN_LOCAL && !exact:
			return fmt.Sprintf("it is an address of this machine, which only --allow %s permits", to.Addr())
		case kind == unix.RTN_BROADCAST || kind == unix.RTN_MULTICAST:
			return "it is a multicast or broadcast address"
		case kind == unix.RTN_ANYCAST:
			return "it is an anycast address of this machine"
		case kind != unix.RTN_UNICAST && kind != unix.RTN_LOCAL && kind != unix.RTN_UNSPEC:
			return fmt.Sprintf("its route has the type %d, not unicast", kind)
		}
	}
	return ""
}

// embedded returns the IPv4 address to which a translator or tunnel on this machine may
// forward packets to an IPv6 address: NAT64 (RFC 6052), 6to4 (RFC 3056), and
// IPv4-compatible addresses (RFC 4291, 2.5.5.1).
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case a.Is4():
		return netip.Addr{}
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:]))
	}
	return netip.Addr{}
}

// allowedBy decides about a destination by the names that have resolved to it. If it refuses, it
// names a rule that applies to other ports of this address.
func (r *Rules) allowedBy(protocol string, to netip.AddrPort) verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, port, now := to.Addr(), to.Port(), r.Now()
	const unknown = "no allowed name has resolved to this address"
	v := verdict{rule: none, reason: unknown}
	for _, g := range slices.Backward(slices.Concat(r.fixed[a], r.grants[a])) { // the program probably means the last one
		rule := r.all()[g.rule]
		spent := rule.spent()
		switch {
		case rule.Permits(protocol, port) && spent != "":
			if v.rule == none && v.reason == unknown {
				v.reason = spent
			}
		case rule.Permits(protocol, port) && (g.expires.IsZero() || now.Before(g.expires)):
			if v.rule == none {
				v.rule, v.reason = g.rule, ""
			}
			if !slices.Contains(v.names, g.name) {
				v.names = append(v.names, g.name)
			}
		case v.reason != unknown:
		case rule.Permits(protocol, port):
			v.reason = fmt.Sprintf("the answer for %s has expired; resolve the name again", g.name)
		default:
			v.reason = rule.otherPort(g.name, port)
		}
	}
	if v.reason != unknown {
		return v
	}
	narrowest := -1
	for _, rule := range r.all() {
		if !rule.removed && rule.Name == "" && rule.Prefix.Contains(a) && rule.Prefix.Bits() > narrowest {
			narrowest = rule.Prefix.Bits()
			v.reason = rule.otherPort(config.Allow{Prefix: rule.Prefix}.String(), port)
		}
	}
	if v.reason == unknown && nameServerPorts[port] {
		v.reason = "only the gateway resolves names"
	}
	return v
}

// otherPort returns why a rule for a name or for addresses does not permit a port of them.
func (r *rule) otherPort(what string, port uint16) string {
	if r.Protocol == "" && r.Port == 0 {
		return fmt.Sprintf("port %d is for name servers; only --allow %v permits it", port, config.Allow{Name: r.Name, Prefix: r.Prefix, Port: port})
	}
	return what + " is only allowed on " + r.Ports()
}

// grant permits an address for the lifetime of an answer.
func (r *Rules) grant(a netip.Addr, name string, lifetime time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	expires := now.Add(min(max(lifetime, leastLifetime), mostLifetime))
	for _, n := range r.matching(name) {
		g := grant{n, name, expires}
		all := slices.DeleteFunc(r.grants[a], func(old grant) bool {
			same := old.rule == n && old.name == name
			if same && old.expires.After(expires) {
				g.expires = old.expires
			}
			return same
		})
		if len(all) >= maxNames {
			all = all[1:]
		}
		if delete(r.grants, a); r.count()+len(all) >= maxGrants {
			r.evict()
		}
		r.grants[a] = append(all, g)
	}
}

func (r *Rules) count() (n int) {
	for _, all := range r.grants {
		n += len(all)
	}
	return n
}

// evict drops all grants of the address that expires first.
func (r *Rules) evict() {
	var oldest netip.Addr
	var first time.Time
	for a, all := range r.grants {
		last := all[0].expires
		for _, g := range all {
			if g.expires.After(last) {
				last = g.expires
			}
		}
		if !oldest.IsValid() || last.Before(first) {
			oldest, first = a, last
		}
	}
	delete(r.grants, oldest)
}
