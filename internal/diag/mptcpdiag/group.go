// SPDX-License-Identifier: Apache-2.0

package mptcpdiag

import (
	"cmp"
	"slices"
)

// Group is one reason that several connections have.
type Group struct {
	Reason
	Count       int      `json:"count"`       // number of connections
	Varied      bool     `json:"varied"`      // the texts differ, for example by the peer; Text is that of the first connection
	Connections []string `json:"connections"` // identifiers of the first connections
}

// maxGrouped is the maximum number of connections that a Group names.
const maxGrouped = 50

// GroupBy combines the reasons of many connections. reasons has the result of Explain,
// and id returns the identifier of a connection. Reasons are equal if their codes,
// interfaces and local addresses are. The reason of the most connections comes first.
func GroupBy(reasons [][]Reason, id func(n int) string) []Group {
	type key struct {
		code           Code
		iface, address string
	}
	groups := map[key]*Group{}
	var order []*Group
	for n, all := range reasons {
		for _, r := range all {
			k := key{r.Code, r.Iface, r.Address}
			g := groups[k]
			if g == nil {
				g = &Group{Reason: r}
				groups[k], order = g, append(order, g)
			}
			g.Count++
			g.Varied = g.Varied || g.Text != r.Text
			if len(g.Connections) < maxGrouped {
				g.Connections = append(g.Connections, id(n))
			}
		}
	}
	slices.SortStableFunc(order, func(a, b *Group) int { return cmp.Compare(b.Count, a.Count) })
	all := make([]Group, len(order))
	for n, g := range order {
		all[n] = *g
	}
	return all
}
