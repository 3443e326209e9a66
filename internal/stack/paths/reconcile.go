// SPDX-License-Identifier: Apache-2.0

// Package paths makes each interface of a stack a path of its own. Packets from
// an interface's address leave by that interface, and each address is an MPTCP
// endpoint as long as its interface is up and has carrier.
//
// The package follows the present configuration, regardless of its origin:
// addresses and routes from --if, DHCP, a router, or `ip` in the stack.
// Reconcile compares the stack with the wishes for its interfaces and returns
// the changes to make. A Keeper calls it whenever the stack reports a change.
package paths

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// maxEndpoints is the kernel's limit (MPTCP_PM_ADDR_MAX, net/mptcp).
const maxEndpoints = 8

// maxID is the highest ID of an endpoint; 0 is that of the first subflow.
const maxID = 255

// Settle is the time that a new endpoint gets to create its subflows. Until
// then it replaces no other endpoint. It is also the time for peers to learn
// that an endpoint is gone.
const Settle = time.Second

// priority is the priority of the rules, before main's 32766.
const priority = 1000

// Want describes the desired state of an interface.
type Want struct {
	Name     string // in the stack
	Table    int    // its own routing table; 0: none
	Endpoint uint32 // the flags of its MPTCP endpoints (stacknet.Endpoint*); 0: no endpoints
	Cut      bool   // the network behind it is known to be unreachable, whatever its carrier
}

// State is the present state of a stack.
type State struct {
	Links     []stacknet.LinkState
	Addrs     []stacknet.Address
	Routes    []stacknet.Route    // of all tables
	Rules     []stacknet.Rule     // the rules that have stacknet.Protocol
	Endpoints []stacknet.Endpoint // all endpoints
	OneTable  bool                // no policy routing: only the table main exists

	// Alone counts, for each address on a link without carrier, the MPTCP
	// connections whose subflows all come from it.
	Alone map[netip.Addr]int
}

// Change is one change to make. Exactly one of its fields is set.
type Change struct {
	SetRoute, DelRoute       *stacknet.Route
	AddRule, DelRule         *stacknet.Rule
	AddEndpoint, DelEndpoint *stacknet.Endpoint
	Refresh                  int // index of the interface whose neighbours must be resolved again
}

// String describes the change in the words of ip(8).
func (c Change) String() string {
	switch {
	case c.SetRoute != nil:
		return "route replace " + routeText(c.SetRoute)
	case c.DelRoute != nil:
		return "route del " + routeText(c.DelRoute)
	case c.AddRule != nil:
		return fmt.Sprintf("rule add from %s lookup %d", c.AddRule.Src, c.AddRule.Table)
	case c.DelRule != nil:
		return fmt.Sprintf("rule del from %s lookup %d", c.DelRule.Src, c.DelRule.Table)
	case c.AddEndpoint != nil:
		return "mptcp endpoint add " + endpointText(c.AddEndpoint)
	case c.DelEndpoint != nil:
		return fmt.Sprintf("mptcp endpoint del id %d (%s)", c.DelEndpoint.ID, c.DelEndpoint.Addr)
	}
	return fmt.Sprintf("neigh flush dev %d nud incomplete nud failed", c.Refresh)
}

func routeText(r *stacknet.Route) string {
	s := r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	s += fmt.Sprintf(" dev %d", r.Ifindex)
	if r.Src.IsValid() {
		s += " src " + r.Src.String()
	}
	if r.Metric != 0 {
		s += fmt.Sprintf(" metric %d", r.Metric)
	}
	if r.OnLink {
		s += " onlink"
	}
	return s + fmt.Sprintf(" table %d", r.Table)
}

func endpointText(e *stacknet.Endpoint) string {
	s := e.Addr.String()
	if e.ID != 0 {
		s += fmt.Sprintf(" id %d", e.ID)
	}
	for _, f := range []struct {
		flag uint32
		name string
	}{
		{stacknet.EndpointSubflow, "subflow"}, {stacknet.EndpointSignal, "signal"},
		{stacknet.EndpointBackup, "backup"}, {stacknet.EndpointFullmesh, "fullmesh"},
	} {
		if e.Flags&f.flag != 0 {
			s += " " + f.name
		}
	}
	return s + fmt.Sprintf(" dev %d", e.Ifindex)
}

// Memory is the state between calls of Reconcile. The zero Memory is ready to
// use.
type Memory struct {
	endpoints map[netip.Addr]*endpoint
	left      map[netip.Addr]time.Time // when our endpoints were deleted, for Settle
	held      time.Duration            // time until the next endpoint may come back; 0: none waits
	silent    map[int]bool             // interfaces that did not carry at the last scan
	oneTable  bool                     // the user was told that there is only one table
}

// endpoint is one of our endpoints.
type endpoint struct {
	id       int // kept as long as its address exists
	flags    uint32
	since    time.Time // when we last added it; zero: never
	there    bool      // we added it, and it should exist
	dropped  bool      // someone else deleted it, so it stays deleted
	notified bool      // the user was told about it
}

// link is a wanted interface that exists.
type link struct {
	Want
	index   int
	carries bool         // it is a usable path now
	addrs   []netip.Addr // addresses that programs can use
}

// Reconcile compares state with wants. It returns the changes in the order in
// which they must be made, and notes for the user. It has no side effects
// except on m, which must always belong to the same stack.
func Reconcile(state *State, wants []Want, m *Memory, now time.Time) (changes []Change, notes []string) {
	links := gather(state, wants)
	changes = append(m.refresh(links), tables(state, links)...)
	add, del, notes := m.reconcile(state, links, now)
	if state.OneTable && len(links) > 1 && !m.oneTable {
		m.oneTable = true
		notes = append(notes, "the stack has no policy routing, so packets from one interface's address may leave through another interface")
	}
	// Additions come first, so that a connection is never without an
	// available path.
	changes = append(changes, rules(state, links)...)
	changes = append(changes, add...)
	return append(changes, del...), notes
}

// refresh ensures that nothing waits for neighbours that were unreachable when
// they were last resolved.
func (m *Memory) refresh(links []link) (changes []Change) {
	silent := map[int]bool{}
	for _, l := range links {
		if !l.carries {
			silent[l.index] = true
		} else if m.silent[l.index] {
			changes = append(changes, Change{Refresh: l.index})
		}
	}
	m.silent = silent
	return changes
}

func gather(state *State, wants []Want) []link {
	var links []link
	for _, w := range wants {
		n := slices.IndexFunc(state.Links, func(l stacknet.LinkState) bool { return l.Name == w.Name })
		if n < 0 {
			continue
		}
		if state.OneTable {
			w.Table = 0
		}
		l := link{Want: w, index: state.Links[n].Index, carries: state.Links[n].Carries() && !w.Cut}
		for _, a := range state.Addrs {
			if a.IfIndex == l.index && usable(a) {
				l.addrs = append(l.addrs, a.Prefix.Addr())
			}
		}
		links = append(links, l)
	}
	return links
}

// usable reports whether connections can and should use address a. The kernel
// reserves some IPv6 addresses for itself.
func usable(a stacknet.Address) bool {
	addr := a.Prefix.Addr()
	if a.Scope == unix.RT_SCOPE_LINK || a.Scope == unix.RT_SCOPE_NOWHERE || addr.IsLinkLocalUnicast() {
		return false
	}
	const not = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	return addr.Is4() || a.Flags&not == 0 && a.Flags&unix.IFA_F_TEMPORARY == 0
}

// place identifies a route within a table.
type place struct {
	table, metric int
	dst           netip.Prefix
}

func placeOf(r *stacknet.Route) place { return place{r.Table, r.Metric, r.Dst} }

// tables copies main's routes for each link to the link's own table. Without
// the routes to the networks of the link's addresses, packets to a neighbour
// would go through the gateway.
func tables(state *State, links []link) []Change {
	want := map[place]stacknet.Route{}
	var order []place
	for _, l := range links {
		if l.Table == 0 {
			continue
		}
		for _, r := range state.Routes {
			if r.Table != unix.RT_TABLE_MAIN || r.Ifindex != l.index {
				continue
			}
			r.Table, r.Proto = l.Table, stacknet.Protocol
			p := placeOf(&r)
			if old, ok := want[p]; !ok {
				order = append(order, p)
			} else if !preferred(&r, &old) {
				continue
			}
			want[p] = r
		}
	}
	// A gateway can be used only after a route to its network exists.
	sort.SliceStable(order, func(i, j int) bool { return hops(want[order[i]]) < hops(want[order[j]]) })
	have := map[place]stacknet.Route{}
	var del []Change
	for _, r := range state.Routes {
		if r.Table == unix.RT_TABLE_MAIN {
			continue
		}
		p := placeOf(&r)
		if _, ok := want[p]; !ok && r.Proto == stacknet.Protocol {
			del = append(del, Change{DelRoute: &r})
			continue
		}
		have[p] = r
	}
	var set []Change
	for _, p := range order {
		old, ok := have[p]
		if ok && old.Proto != stacknet.Protocol {
			continue // someone has added a different route there
		}
		if r := want[p]; old != r {
			set = append(set, Change{SetRoute: &r})
		}
	}
	// Routes through a gateway are deleted before the route to the gateway.
	sort.SliceStable(del, func(i, j int) bool { return hops(*del[i].DelRoute) > hops(*del[j].DelRoute) })
	return append(set, del...)
}

func hops(r stacknet.Route) int {
	if r.Gateway.IsValid() {
		return 1
	}
	return 0
}

// preferred reports whether a router gave route a the higher preference (RFC
// 4191: 1 is high, 0 medium, 3 low).
func preferred(a, b *stacknet.Route) bool {
	rank := func(p uint8) int8 { return int8(p << 6) }
	return rank(a.Pref) > rank(b.Pref)
}

// rules makes packets from an address of a link use the link's table.
func rules(state *State, links []link) []Change {
	want := map[stacknet.Rule]bool{}
	var changes []Change
	for _, l := range links {
		if l.Table == 0 {
			continue
		}
		for _, a := range l.addrs {
			r := stacknet.Rule{Priority: priority, Src: a, Table: l.Table}
			want[r] = true
			if !slices.Contains(state.Rules, r) {
				changes = append(changes, Change{AddRule: &r})
			}
		}
	}
	for _, r := range state.Rules {
		if !want[r] {
			changes = append(changes, Change{DelRule: &r})
		}
	}
	return changes
}
