// SPDX-License-Identifier: Apache-2.0

package mptcpdiag

import (
	"fmt"
	"testing"
)

func TestGroupBy(t *testing.T) {
	plain := func(peer string) []Reason {
		return []Reason{{Code: NoCapable, Text: peer + " answered without MP_CAPABLE", Remedy: "use another path"}}
	}
	down := Reason{Code: Down, Iface: "eth1", Text: "the interface is down"}
	reasons := [][]Reason{{down}, plain("10.0.0.1"), nil, plain("10.0.0.2"), {down, {Code: Down, Iface: "eth2", Text: "the interface is down"}}, plain("10.0.0.1")}
	for range 100 {
		reasons = append(reasons, plain("10.0.0.1"))
	}
	got := ""
	for _, g := range GroupBy(reasons, func(n int) string { return fmt.Sprint("c", n) }) {
		got += fmt.Sprintf("%d %s %s varied=%v %s (%d named, first %s)\n", g.Count, g.Code, g.Iface, g.Varied, g.Text, len(g.Connections), g.Connections[0])
	}
	const want = `103 peer-without-mptcp-or-option-stripped  varied=true 10.0.0.1 answered without MP_CAPABLE (50 named, first c1)
2 interface-down eth1 varied=false the interface is down (2 named, first c0)
1 interface-down eth2 varied=false the interface is down (1 named, first c4)
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if all := GroupBy(nil, nil); len(all) != 0 {
		t.Errorf("no connections: %v", all)
	}
}
