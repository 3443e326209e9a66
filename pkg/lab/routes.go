// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"net/netip"
	"slices"
)

// addRoutes gives the nodes routes to the networks of all wires, by the shortest
// paths through routers.
func (p *planner) addRoutes() error {
	for k := range p.plan.Wires {
		hops := p.hops(k)
		for n := range p.plan.Nodes {
			p.routesTo(&p.plan.Nodes[n], k, hops)
		}
	}
	for n := range p.plan.Nodes {
		p.useDefault(&p.plan.Nodes[n])
	}
	return nil
}

// hops returns for each router the number of further routers on its shortest path
// to a wire. Routers without a path are missing.
func (p *planner) hops(wire int) map[string]int {
	hops := map[string]int{}
	next := []int{wire}
	for n := 0; len(next) > 0; n++ {
		var further []int
		for _, w := range next {
			for _, e := range p.plan.Wires[w].Ends {
				node := &p.plan.Nodes[p.nodes[e.Node]]
				if _, seen := hops[node.Name]; seen || !node.Router {
					continue
				}
				hops[node.Name] = n
				for _, i := range node.Interfaces {
					further = append(further, p.wires[i.Wire])
				}
			}
		}
		next = further
	}
	return hops
}

// way is a first hop from a node to a network.
type way struct {
	iface  int // index of the interface
	router *PlannedNode
	hops   int
}

// ways returns the best first hop to a wire through each interface of a node that
// leads there, in the order of the interfaces. If the node is at the wire, there
// are none.
func (p *planner) ways(node *PlannedNode, wire int, hops map[string]int) []way {
	var all []way
	for j, i := range node.Interfaces {
		if p.wires[i.Wire] == wire {
			return nil
		}
		best := way{iface: -1}
		for _, e := range p.plan.Wires[p.wires[i.Wire]].Ends {
			n, ok := hops[e.Node]
			if !ok || e.Node == node.Name || best.iface >= 0 && n >= best.hops {
				continue
			}
			best = way{j, &p.plan.Nodes[p.nodes[e.Node]], n}
		}
		if best.iface >= 0 {
			all = append(all, best)
		}
	}
	return all
}

// routesTo adds a node's routes to the networks of a wire.
//
// A router gets one route. Another node gets a route for each interface that
// leads there, because each interface is a path of its own for MPTCP. The main
// table prefers the first interface, so an interface gets no route if a later one
// is nearer.
func (p *planner) routesTo(node *PlannedNode, wire int, hops map[string]int) {
	ways := p.ways(node, wire, hops)
	if len(ways) == 0 {
		return
	}
	if node.Router {
		nearest := slices.MinFunc(ways, func(a, b way) int { return cmp.Compare(a.hops, b.hops) })
		ways = []way{nearest}
	}
	for n, w := range ways {
		if slices.ContainsFunc(ways[n+1:], func(later way) bool { return later.hops < w.hops }) {
			continue
		}
		i := &node.Interfaces[w.iface]
		for _, to := range p.plan.Wires[wire].Networks {
			if via := addressOn(w.router, i.Wire, to.Addr().Is4()); via.IsValid() {
				i.Routes = append(i.Routes, Route{To: to, Via: via, Router: w.router.Name})
			}
		}
	}
}

// addressOn returns the address of a node on a wire.
func addressOn(node *PlannedNode, wire string, four bool) netip.Addr {
	for _, i := range node.Interfaces {
		for _, a := range i.Addresses {
			if i.Wire == wire && a.Addr().Is4() == four {
				return a.Addr()
			}
		}
	}
	return netip.Addr{}
}

// useDefault replaces the routes of a node with one interface and one router by a
// default route.
func (p *planner) useDefault(node *PlannedNode) {
	if len(node.Interfaces) > 1 || node.Router {
		return
	}
	i := &node.Interfaces[0]
	var routes []Route
	for _, four := range []bool{true, false} {
		var of []Route
		for _, r := range i.Routes {
			if r.To.Addr().Is4() == four {
				of = append(of, r)
			}
		}
		one := len(of) > 0 && !slices.ContainsFunc(of, func(r Route) bool { return r.Via != of[0].Via })
		if one {
			everywhere := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			if four {
				everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			}
			of = []Route{{To: everywhere, Via: of[0].Via, Router: of[0].Router}}
		}
		routes = append(routes, of...)
	}
	i.Routes = routes
}

// addNames gives each node names for the addresses that it can reach: NODE for
// all addresses of a node, the nearest first, and NODE.WIRE for the address at a
// wire.
func (p *planner) addNames() error {
	all := make([]map[string]int, len(p.plan.Wires))
	for k := range p.plan.Wires {
		all[k] = p.hops(k)
	}
	for n := range p.plan.Nodes {
		node := &p.plan.Nodes[n]
		far := make([]int, len(p.plan.Wires)) // distance of each wire; -1: unreachable
		for k := range p.plan.Wires {
			far[k] = p.distance(node, k, all[k])
		}
		for m := range p.plan.Nodes {
			other := &p.plan.Nodes[m]
			near := slices.DeleteFunc(slices.Clone(other.Interfaces), func(i PlannedInterface) bool { return far[p.wires[i.Wire]] < 0 })
			slices.SortStableFunc(near, func(a, b PlannedInterface) int { return cmp.Compare(far[p.wires[a.Wire]], far[p.wires[b.Wire]]) })
			for _, i := range near {
				for _, a := range i.Addresses {
					if !node.reaches(i.Wire, a.Addr()) {
						continue
					}
					node.Names = append(node.Names, Name{other.Name, a.Addr()})
					if len(other.Interfaces) > 1 {
						node.Names = append(node.Names, Name{other.Name + "." + i.Wire, a.Addr()})
					}
				}
			}
		}
	}
	return nil
}

// reaches reports whether a node is at the wire of an address or has a route to
// it. It has none if a router lacks an address of this family.
func (n *PlannedNode) reaches(wire string, a netip.Addr) bool {
	return slices.ContainsFunc(n.Interfaces, func(i PlannedInterface) bool {
		return i.Wire == wire && slices.ContainsFunc(i.Addresses, func(own netip.Prefix) bool { return own.Addr().Is4() == a.Is4() }) ||
			slices.ContainsFunc(i.Routes, func(r Route) bool { return r.To.Contains(a) })
	})
}

// distance returns the number of routers between a node and a wire, or -1 if
// there is no path.
func (p *planner) distance(node *PlannedNode, wire int, hops map[string]int) int {
	for _, i := range node.Interfaces {
		if p.wires[i.Wire] == wire {
			return 0
		}
	}
	ways := p.ways(node, wire, hops)
	if len(ways) == 0 {
		return -1
	}
	return 1 + slices.MinFunc(ways, func(a, b way) int { return cmp.Compare(a.hops, b.hops) }).hops
}
