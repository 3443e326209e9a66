// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// natTypes are the kinds of NAT by the names of RFC 3489. RFC 4787 describes them as pairs of
// mapping and filtering.
var natTypes = []string{"full-cone", "restricted", "port-restricted", "symmetric"}

// checkNAT checks the keys nat and hairpin of an end.
func (p *planner) checkNAT(e End, node Node, at string) error {
	switch {
	case e.NAT == "" && e.Hairpin:
		return wrong(join(at, "hairpin"), `only a NAT has hairpins; add "nat"`)
	case e.NAT == "":
		return nil
	case !slices.Contains(natTypes, e.NAT):
		return wrong(join(at, "nat"), "%q; %s", e.NAT, suggest.Suggest(e.NAT, natTypes, "expected "+strings.Join(natTypes, ", ")))
	case !node.Router:
		return wrong(join(at, "nat"), `only a router translates addresses; add "router": true to the node`)
	}
	return nil
}

// addNAT adds the rules of the NAT at an interface, if there is one.
func (p *planner) addNAT(node *PlannedNode, j int) error {
	e, i := p.t.Nodes[node.Name].Wires[j], &node.Interfaces[j]
	if e.NAT == "" {
		return nil
	}
	n := slices.IndexFunc(i.Addresses, func(a netip.Prefix) bool { return a.Addr().Is4() })
	at := fmt.Sprintf("nodes.%s.wires[%d].nat", node.Name, j)
	switch {
	case n < 0:
		return wrong(at, "%s has no IPv4 address at the wire %s", node.Name, i.Wire)
	case node.NAT != "":
		return wrong(at, "%s has a NAT already; use a second router", node.Name)
	}
	node.NAT = natRules(i.Name, i.Addresses[n].Addr(), e.NAT, e.Hairpin)
	return nil
}

// natRules returns the rules of a NAT for nft(8). The addresses behind the other interfaces
// leave through dev with its address.
//
// Linux's own masquerading is a port-restricted NAT: a mapping keeps its port for all
// destinations while no other one needs it, and only answers come in. With random ports it is
// symmetric. For the other types and for hairpins, the chain "learn" records which inner
// address and port each outer port stands for, after the translation.
func natRules(dev string, addr netip.Addr, kind string, hairpin bool) string {
	masquerade := "masquerade"
	if kind == "symmetric" {
		masquerade = "masquerade fully-random"
	}
	var in, turn string
	switch kind {
	case "full-cone":
		in = fmt.Sprintf("iifname %q ip daddr %s dnat ip to meta l4proto . th dport map @inner", dev, addr)
	case "restricted":
		in = fmt.Sprintf("iifname %q ip daddr %s meta l4proto . th dport . ip saddr @contacted dnat ip to meta l4proto . th dport map @inner", dev, addr)
	}
	if hairpin {
		in += fmt.Sprintf("\n    iifname != %q ip daddr %s dnat ip to meta l4proto . th dport map @inner", dev, addr)
		turn = fmt.Sprintf("oifname != %q ct status dnat ct original ip daddr %s snat ip to %s", dev, addr, addr)
	}
	return fmt.Sprintf(`table ip lab_nat {
  map inner {
    type inet_proto . inet_service : ipv4_addr . inet_service
    flags dynamic,timeout
    timeout 5m
  }
  set contacted {
    type inet_proto . inet_service . ipv4_addr
    flags dynamic,timeout
    timeout 5m
  }
  chain in {
    type nat hook prerouting priority dstnat
    %s
  }
  chain out {
    type nat hook postrouting priority srcnat
    oifname %q ip saddr != %s %s
    %s
  }
  chain learn {
    type filter hook postrouting priority 300
    ct direction original ip saddr %s ct original ip saddr != %[3]s meta l4proto { tcp, udp } update @inner { meta l4proto . th sport : ct original ip saddr . ct original proto-src } update @contacted { meta l4proto . th sport . ip daddr }
  }
  chain closed {
    type filter hook forward priority filter
    iifname %[2]q ct state new ct status ! dnat drop
  }
}
`, in, dev, addr, masquerade, turn, addr)
}
