// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/live"
)

// column is a column by which connections can be sorted.
type column int

const (
	byRate column = iota
	bySent
	byReceived
	byRetrans
	byCwnd
	byRTT
	byPeer
	columns // number of columns
)

// row is a line of the connections' pane: a connection or a subflow.
type row struct {
	conn    *live.Connection
	subflow *live.Subflow // nil: the connection itself
	last    bool          // last of its connection's subflows
}

// id identifies the row for its whole life.
func (r row) id() string {
	if r.subflow != nil {
		return r.conn.ID + "/" + r.subflow.ID
	}
	return r.conn.ID
}

// rows returns the lines of a snapshot's connections, sorted and filtered. With tree,
// each MPTCP connection is followed by its subflows.
func rows(s *live.Snapshot, by column, inverted, tree bool, filter string) []row {
	var conns []*live.Connection
	for i := range s.Connections {
		if c := &s.Connections[i]; matches(c, filter) {
			conns = append(conns, c)
		}
	}
	slices.SortStableFunc(conns, func(a, b *live.Connection) int {
		n := by.compare(a, b)
		if inverted {
			n = -n
		}
		return cmp.Or(n, cmp.Compare(a.ID, b.ID))
	})
	var all []row
	for _, c := range conns {
		all = append(all, row{conn: c})
		if !tree || c.Proto == "tcp" {
			continue
		}
		for i := range c.Subflows {
			all = append(all, row{conn: c, subflow: &c.Subflows[i], last: i == len(c.Subflows)-1})
		}
	}
	return all
}

// compare orders two connections by a column. Larger values come first; peers are
// in alphabetical order.
func (by column) compare(a, b *live.Connection) int {
	switch by {
	case bySent:
		return cmp.Compare(b.TxRate.N, a.TxRate.N)
	case byReceived:
		return cmp.Compare(b.RxRate.N, a.RxRate.N)
	case byRetrans:
		return cmp.Compare(b.Retrans.N, a.Retrans.N)
	case byCwnd:
		return cmp.Compare(largest(b, cwndOf), largest(a, cwndOf))
	case byRTT:
		return cmp.Compare(largest(b, rttOf), largest(a, rttOf))
	case byPeer:
		return cmp.Or(strings.Compare(a.Process, b.Process), strings.Compare(a.Remote, b.Remote), strings.Compare(a.Local, b.Local))
	}
	return cmp.Compare(b.TxRate.N+b.RxRate.N, a.TxRate.N+a.RxRate.N)
}

func cwndOf(f *live.Subflow) live.Value { return f.Cwnd }
func rttOf(f *live.Subflow) live.Value  { return f.RTT }

// largest returns the largest value among a connection's subflows.
func largest(c *live.Connection, of func(*live.Subflow) live.Value) (most uint64) {
	for i := range c.Subflows {
		most = max(most, of(&c.Subflows[i]).N)
	}
	return most
}

// matches reports whether a name or address of a connection or its subflows contains the
// word.
func matches(c *live.Connection, word string) bool {
	if word == "" {
		return true
	}
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), strings.ToLower(word)) })
	}
	if has(c.Process, fmt.Sprint(c.PID), c.Local, c.Remote, c.Token, c.Proto, c.State) {
		return true
	}
	return slices.ContainsFunc(c.Subflows, func(f live.Subflow) bool { return has(f.Local, f.Remote, f.Iface, f.State) })
}
