// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// diamond has two routers on different paths and one behind both.
const diamond = `{
  "name": "diamond",
  "wires": {"d": {"network": ["203.0.113.0/24", "fd00:d::/64"]}, "b2": {"delay": "20ms", "loss": "1%"}},
  "seed": 5,
  "nodes": {
    "client": {"wires": ["a", "b"]},
    "ra": {"wires": ["a", "a2"], "router": true},
    "rb": {"wires": ["b", "b2"], "router": true},
    "core": {"wires": ["a2", "b2", "d"], "router": true},
    "server": {"wires": ["d"], "server": true, "run": "nginx"},
  },
}`

// The plans of these topologies are in testdata.
func TestPlan(t *testing.T) {
	parsed := func(text string) *Topology {
		l, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for name, l := range map[string]*Topology{
		"full": parsed(full), "pair": parsed(pair), "diamond": parsed(diamond),
		"paths":  Paths(2, Wire{Delay: "20ms", Loss: "1%", Seed: 7}),
		"chain":  Shape{Routers: 3, Server: Command{"iperf3", "-s"}}.Topology(),
		"chains": Shape{Paths: 2, Routers: 1, Stack: "bbr", ServerStack: "vanilla"}.Topology(),
	} {
		p, err := l.Plan()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		for _, n := range p.Nodes {
			fmt.Fprintf(&b, "\nlklrun %s\n", strings.Join(n.Flags, " "))
		}
		golden(t, filepath.Join("testdata", name+".txt"), b.Bytes())
	}
}

// A wire that loses 0 % takes no seed, because lklrun refuses a seed without
// anything random. Tests in CI pass the loss as a parameter.
func TestZeroLossTakesNoSeed(t *testing.T) {
	for loss, want := range map[string]bool{"0%": false, "0.0": false, "0.5%": true, "10%": true} {
		p, err := Paths(1, Wire{Delay: "1ms", Loss: loss, Seed: 7}).Plan()
		if err != nil {
			t.Errorf("loss %s: %v", loss, err)
		} else if got := strings.Contains(strings.Join(p.Nodes[0].Flags, " "), "seed="); got != want {
			t.Errorf("loss %s: the client has a seed: %v, expected %v", loss, got, want)
		}
	}
}

// In a long chain, each node can reach each other one by the planned routes.
func TestChainRoutes(t *testing.T) {
	p, err := Shape{Routers: MaxRouters}.Topology().Plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Nodes) != MaxNodes {
		t.Fatalf("%d nodes", len(p.Nodes))
	}
	node := func(name string) *PlannedNode {
		return &p.Nodes[slices.IndexFunc(p.Nodes, func(n PlannedNode) bool { return n.Name == name })]
	}
	for _, from := range p.Nodes {
		for _, to := range p.Nodes {
			dst := to.Interfaces[0].Addresses[0].Addr()
			at := from.Name
			for hops := 0; at != to.Name; hops++ {
				next := step(node(at), dst, p)
				if next == "" || hops > MaxNodes {
					t.Fatalf("from %s to %s (%s): the way ends at %s", from.Name, to.Name, dst, at)
				}
				at = next
			}
		}
	}
}

// step returns the node to which another one sends a packet for dst.
func step(n *PlannedNode, dst netip.Addr, p *Plan) string {
	best, next := -1, ""
	for _, i := range n.Interfaces {
		for _, a := range i.Addresses {
			if a.Contains(dst) && a.Bits() > best {
				best = a.Bits()
				for _, other := range p.Nodes {
					for _, j := range other.Interfaces {
						if j.Wire == i.Wire && j.Addresses[0].Addr() == dst {
							next = other.Name
						}
					}
				}
			}
		}
		for _, r := range i.Routes {
			if r.To.Contains(dst) && r.To.Bits() > best {
				best, next = r.To.Bits(), r.Router
			}
		}
	}
	return next
}

func TestNatural(t *testing.T) {
	got := []string{"r10", "r2", "b", "a", "r2a", "r02", "r", "10", "9"}
	slices.SortFunc(got, natural)
	if want := "9 10 a b r r2 r2a r02 r10"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}
