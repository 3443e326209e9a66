// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// reconcile returns the endpoints to add and to delete.
//
// An endpoint is deleted when its link no longer carries. This closes its
// subflows at once, and other subflows resend their undelivered data. TCP would
// first wait for its timers. There are exceptions:
//
//   - It stays if no other link has an endpoint: a connection without a
//     subflow would end after net.mptcp.close_timeout.
//   - It stays while another link's endpoint is new, because no subflow there
//     can inform the peer yet.
//   - It stays while connections have only this path, such as those whose
//     peers accept no more subflows. They survive an outage as TCP does, but a
//     deleted subflow could not be created again. The other connections then
//     depend on MPTCP's own timers.
//
// A deleted endpoint comes back after Settle at the earliest, if there is
// another path. The peer learns of both changes by the same address ID.
// REMOVE_ADDR (RFC 8684, 3.4.2) is queued behind other data on the other path,
// and MP_JOIN arrives on its own, idle path. If REMOVE_ADDR arrived last, the
// peer would end the new subflow, and no kernel creates it again.
func (m *Memory) reconcile(state *State, links []link, now time.Time) (add, del []Change, notes []string) {
	if m.endpoints == nil {
		m.endpoints = map[netip.Addr]*endpoint{}
		m.left = map[netip.Addr]time.Time{}
	}
	byAddr := map[netip.Addr]stacknet.Endpoint{}
	used := map[int]bool{}
	for _, e := range state.Endpoints {
		if e.Port == 0 {
			byAddr[e.Addr] = e
		}
		used[e.ID] = true
	}
	carrying := m.observe(byAddr, links, now)
	maps.DeleteFunc(m.left, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) >= Settle })
	m.held = 0

	room := maxEndpoints - len(state.Endpoints)
	present := map[netip.Addr]bool{}
	for i := range links {
		l := &links[i]
		if l.Endpoint == 0 {
			continue
		}
		for _, a := range l.addrs {
			present[a] = true
			e := m.endpoints[a]
			have, there := byAddr[a]
			switch {
			case there && e != nil && e.there && have.Ifindex != l.index:
				// The address has moved to another link.
				del = append(del, Change{DelEndpoint: &have})
				e.there = false
			case there && e != nil && e.there && !l.carries && carrying != "" && state.Alone[a] > 0:
				if !e.notified {
					e.notified = true
					notes = append(notes, fmt.Sprintf("%s has no carrier; its MPTCP endpoint (%s) is kept, because connections have no other path (%d)", l.Name, a, state.Alone[a]))
				}
			case there && e != nil && e.there && !l.carries && carrying != "":
				e.notified = false
				del = append(del, Change{DelEndpoint: &have})
				e.there = false
				notes = append(notes, fmt.Sprintf("%s has no carrier; MPTCP connections move from it (%s) to %s", l.Name, a, carrying))
			case there && have.Flags&stacknet.EndpointImplicit == 0:
				// The endpoint is ours, or someone else created
				// it deliberately.
			case !l.carries || e != nil && e.dropped:
			case carrying != "" && !m.left[a].IsZero():
				m.held = min(cmp.Or(m.held, Settle), Settle-now.Sub(m.left[a]))
			case room <= 0:
				if e = m.remember(a, l.Endpoint, used); !e.notified {
					e.notified = true
					notes = append(notes, fmt.Sprintf("%s: no MPTCP endpoint for %s; a stack has at most %d", l.Name, a, maxEndpoints))
				}
			default:
				e = m.remember(a, l.Endpoint, used)
				n := stacknet.Endpoint{ID: e.id, Addr: a, Ifindex: l.index, Flags: e.flags}
				if there { // it replaces the kernel's own endpoint and takes its ID
					n.ID, e.id = 0, have.ID
				} else {
					room--
				}
				add = append(add, Change{AddEndpoint: &n})
				if e.there = true; !e.since.IsZero() {
					notes = append(notes, fmt.Sprintf("%s has carrier again; MPTCP connections use it (%s)", l.Name, a))
				}
				e.since = now
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(m.endpoints), netip.Addr.Compare) {
		e := m.endpoints[a]
		if present[a] {
			continue
		}
		if have, there := byAddr[a]; there && e.there {
			if carrying == "" && len(links) > 0 {
				continue
			}
			del = append(del, Change{DelEndpoint: &have})
			notes = append(notes, fmt.Sprintf("%s was deleted; MPTCP connections no longer use it", a))
		}
		delete(m.endpoints, a)
	}
	for _, c := range del {
		m.left[c.DelEndpoint.Addr] = now
	}
	return add, del, notes
}

// failed records that the stack has refused c.
func (m *Memory) failed(c Change) {
	if c.AddEndpoint == nil {
		return
	}
	if e := m.endpoints[c.AddEndpoint.Addr]; e != nil {
		e.there = false
	}
}

// observe records changes that others made to our endpoints. It returns the
// names of the links that connections use now, or "".
func (m *Memory) observe(byAddr map[netip.Addr]stacknet.Endpoint, links []link, now time.Time) (carrying string) {
	for a, e := range m.endpoints {
		have, there := byAddr[a]
		switch {
		case e.there && !there:
			e.there, e.dropped = false, true
		case e.there:
			e.flags, e.id = have.Flags&^stacknet.EndpointImplicit, have.ID
		}
	}
	var names []string
	for i := range links {
		l := &links[i]
		if l.Endpoint == 0 || !l.carries {
			continue
		}
		for _, a := range l.addrs {
			have, ok := byAddr[a]
			if e := m.endpoints[a]; e != nil && now.Sub(e.since) < Settle {
				continue
			}
			if ok && have.Flags&stacknet.EndpointImplicit == 0 {
				names = append(names, l.Name)
				break
			}
		}
	}
	return strings.Join(names, ", ")
}

// remember returns the record of the endpoint of a. The endpoint keeps its ID
// as long as the address exists.
func (m *Memory) remember(a netip.Addr, flags uint32, used map[int]bool) *endpoint {
	e := m.endpoints[a]
	if e == nil {
		e = &endpoint{flags: flags}
		m.endpoints[a] = e
	}
	if e.id != 0 && !used[e.id] {
		return e
	}
	e.id = 0
	for id := 1; id <= maxID && e.id == 0; id++ {
		if !used[id] && !m.reserved(id) {
			e.id = id
		}
	}
	return e
}

// reserved reports whether the ID belongs to an endpoint that will come back.
func (m *Memory) reserved(id int) bool {
	for _, e := range m.endpoints {
		if e.id == id {
			return true
		}
	}
	return false
}
