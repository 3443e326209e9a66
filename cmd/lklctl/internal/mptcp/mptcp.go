// SPDX-License-Identifier: Apache-2.0

// Package mptcp contains the verb mptcp: connections, subflows, endpoints, limits and
// events.
package mptcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/sockets"
	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/diag/mptcpdiag"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Command returns the verb mptcp.
func Command(c *verb.Call) *cobra.Command {
	var listeners, detail bool
	var process string
	var w verb.Watching
	cmd := &cobra.Command{
		Use:   "mptcp [-a] [-v] [-p PROCESS] [--watch] [TOKEN|ADDRESS|NETWORK...]",
		Short: "show MPTCP connections, and explain missing subflows",
		Long: `mptcp shows MPTCP connections and their subflows, and says why an interface has
no subflow or a connection is plain TCP. Arguments select connections.`,
		Example: `  lklctl mptcp -v -p curl
  lklctl mptcp --watch 10.71.0.0/16
  lklctl mptcp -o json | jq '.[].why_not[]'`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := selection(cmd, args, process)
			return err
		},
	}
	cmd.RunE = c.Watch(&w, func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
		which, err := selection(cmd, args, process)
		if err != nil {
			return err
		}
		all, err := explained(ctx, info, conn)
		if errors.Is(err, sockdiag.ErrUnsupported) {
			return fmt.Errorf("instance %q: its stack has no MPTCP; use lklrun --stack mptcp", info.Name)
		}
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(k connection) bool {
			// Omit sockets that were never connected.
			return !listeners && (k.State == sockdiag.Listen || k.State == sockdiag.Close) || !which.match(&k.Connection)
		})
		return c.Show(mptcpRows(all), len(all), c.Empty("instance %q has no %sMPTCP connection", info.Name, which.qualifier()), func(out io.Writer) error {
			return writeMPTCP(out, all, detail)
		})
	})
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	c.EmptyFlag(cmd.Flags())
	verb.Document(cmd, []mptcpRow{})
	w.Flag(cmd.Flags())
	cmd.Flags().BoolVarP(&listeners, "all", "a", false, "include listening sockets")
	cmd.Flags().BoolVarP(&detail, "verbose", "v", false, "show more fields of connections and subflows")
	cmd.Flags().StringVarP(&process, "process", "p", "", "show only connections of `PROCESS`, a name or a pid")
	cmd.AddCommand(endpointCommand(c), limitsCommand(c), monitorCommand(c))
	return cmd
}

// connection is an MPTCP connection with the reasons for missing subflows.
type connection struct {
	sockdiag.Connection
	why []mptcpdiag.Reason
}

// explained lists all connections and listeners with their processes, interfaces
// and reasons. If the stack's sock_diag does not support MPTCP, the connections
// contain less information. They also have no reasons, because such a stack has a
// different path manager.
func explained(ctx context.Context, info *instance.Info, conn *stackconn.Conn) ([]connection, error) {
	conns, err := sockdiag.Connections(ctx, conn)
	file := errors.Is(err, sockdiag.ErrUnsupported)
	if file {
		conns, err = sockdiag.ProcConnections(ctx, conn)
	}
	if err != nil {
		return nil, err
	}
	if err := annotateConnections(ctx, conn, conns); err != nil {
		return nil, err
	}
	all := make([]connection, len(conns))
	for i := range conns {
		all[i].Connection = conns[i]
	}
	if file {
		return all, nil
	}
	why, err := mptcpdiag.Explain(ctx, conn, conns, info.Interfaces)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].why = why[i]
	}
	return all, nil
}

// annotateConnections adds processes and interfaces to connections and their
// subflows, like sockets.Annotate.
func annotateConnections(ctx context.Context, conn *stackconn.Conn, conns []sockdiag.Connection) error {
	var flat []sockdiag.Socket
	for _, c := range conns {
		flat = append(flat, c.Socket)
		flat = append(flat, c.Subflows...)
	}
	if err := sockets.Annotate(ctx, conn, flat); err != nil {
		return err
	}
	for i := range conns {
		conns[i].Socket, flat = flat[0], flat[1:]
		n := copy(conns[i].Subflows, flat)
		flat = flat[n:]
		slices.SortStableFunc(conns[i].Subflows, sockdiag.BySubflow)
	}
	return nil
}

// mptcpRow is a connection in the JSON output of mptcp.
type mptcpRow struct {
	sockets.Row
	Fallback *bool               `json:"fallback,omitempty"`   // the connection fell back to TCP
	Unacked  *uint64             `json:"unacked,omitempty"`    // bytes that the program has written and the peer has not acknowledged at the MPTCP level
	Subflows []subflowRow        `json:"subflows,omitzero"`    // subflows of the connection; absent: the stack does not report them
	Proc     *sockdiag.ProcMPTCP `json:"proc_mptcp,omitempty"` // state from /proc/net/mptcp if sock_diag of the stack does not support MPTCP; mptcp_info is then absent
	WhyNot   []mptcpdiag.Reason  `json:"why_not,omitempty"`    // reasons why the connection is plain TCP, or why interfaces have no subflow
}

// subflowRow is a TCP connection that is a subflow of an MPTCP connection.
type subflowRow struct {
	sockets.Row
	Backup bool `json:"backup"` // one of the two sides has marked the subflow as a backup
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
			sub.PID, sub.Process, sub.Processes = 0, "", nil // the process is reported for the connection
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
