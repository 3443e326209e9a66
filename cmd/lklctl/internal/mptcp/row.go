// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"github.com/lklrun/lklrun/cmd/lklctl/internal/sockets"
	"github.com/lklrun/lklrun/internal/diag/whynot"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// mptcpRow is a connection in the JSON output of mptcp.
type mptcpRow struct {
	sockets.Row
	Fallback *bool               `json:"fallback,omitempty"`   // it is plain TCP after all
	Unacked  *uint64             `json:"unacked,omitempty"`    // bytes of the data level that were given to the stack and are yet to be acknowledged
	Subflows []subflowRow        `json:"subflows,omitzero"`    // the TCP connections that carry it; absent: the stack does not tell which
	Proc     *sockdiag.ProcMPTCP `json:"proc_mptcp,omitempty"` // what a stack tells whose sock_diag has no MPTCP; mptcp_info is absent then
	WhyNot   []whynot.Reason     `json:"why_not,omitempty"`    // why it is plain TCP, or which interfaces carry no subflow, and why
}

// subflowRow is a TCP connection that is a subflow of an MPTCP connection.
type subflowRow struct {
	sockets.Row
	Backup bool `json:"backup"` // either side wants it for the worst case only
}

func mptcpRows(conns []connection) []mptcpRow {
	rows := make([]mptcpRow, 0, len(conns))
	for _, c := range conns {
		r := mptcpRow{Row: sockets.NewRow(c.Socket), Proc: c.Proc, WhyNot: c.why}
		if c.Proc == nil {
			fell := fellBack(c)
			r.Fallback, r.Subflows = &fell, []subflowRow{}
		}
		if n := unacked(c); n.Known {
			r.Unacked = &n.N
		}
		for _, s := range c.Subflows {
			sub := subflowRow{Row: sockets.NewRow(s), Backup: s.Subflow != nil && s.Subflow.Flags.Backup()}
			sub.PID, sub.Process, sub.Processes = 0, "", nil // they are those of the connection
			r.Subflows = append(r.Subflows, sub)
		}
		rows = append(rows, r)
	}
	return rows
}

func fellBack(c connection) bool { return c.MPTCP != nil && c.MPTCP.Fallback }

// unacked returns the amount of data that the program has written and the peer
// has not acknowledged. A connection that fell back to TCP has no such
// counters.
func unacked(c connection) sockdiag.Value {
	i := c.MPTCP
	if i == nil || i.Fallback || c.State == sockdiag.Listen || !i.WriteSeq.Known || !i.SndUna.Known || i.SndUna.N == 0 {
		return sockdiag.Value{}
	}
	return sockdiag.Known(i.WriteSeq.N - i.SndUna.N)
}
