// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/sockdiag"
	"github.com/lklrun/lklrun/internal/stackconn"
)

func (c *ctl) mptcpCommand() *cobra.Command {
	var listeners bool
	var w watching
	cmd := &cobra.Command{
		Use:   "mptcp [-a] [--watch] [endpoint ... | limits ...]",
		Short: "show MPTCP connections and subflows; endpoints and limits",
		Long: `mptcp shows each MPTCP connection of the stack: process, addresses, state,
token, bytes of the connection (each byte once); and below it the subflows that
carry it: interface, addresses, state, smoothed RTT, congestion window, bytes
sent and received, segments retransmitted. A subflow that either side marked as
backup is marked with "backup".

A connection whose peer (or path) has no MPTCP goes on as plain TCP, and is
shown as such.

Its verbs are ip-mptcp(8)'s: endpoints are the addresses from which subflows
leave or which the peer is told of; what is changed holds at once, for
connections that are open too.`,
		Example: `  lklctl mptcp
  lklctl mptcp endpoint change 10.1.0.2 backup
  lklctl mptcp -o json | jq '.[].subflows[] | {iface, rtt: .tcp_info.rtt_us}'`,
		Args: noArgs,
		RunE: c.watch(&w, func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			conns, err := sockdiag.Connections(ctx, conn)
			if errors.Is(err, sockdiag.ErrUnsupported) {
				return fmt.Errorf("the stack of instance %q has no MPTCP: run lklrun --stack mptcp", info.Name)
			}
			if err != nil {
				return err
			}
			if !listeners {
				conns = connected(conns)
			}
			if err := annotateConnections(ctx, conn, conns); err != nil {
				return err
			}
			return c.show(mptcpRows(conns), len(conns), c.nothing("instance %q has no MPTCP connection", info.Name), func(out io.Writer) error {
				return writeMPTCP(out, conns)
			})
		}),
	}
	c.flags(cmd.Flags(), true)
	document(cmd, []mptcpRow{})
	w.flag(cmd.Flags())
	cmd.Flags().BoolVarP(&listeners, "all", "a", false, "listening sockets too")
	cmd.AddCommand(c.endpointCommand(), c.limitsCommand())
	return cmd
}

func connected(conns []sockdiag.Connection) []sockdiag.Connection {
	kept := conns[:0]
	for _, c := range conns {
		// One that was never connected has nothing to show.
		if c.State != sockdiag.Listen && c.State != sockdiag.Close {
			kept = append(kept, c)
		}
	}
	return kept
}

// annotateConnections is annotate for connections and their subflows.
func annotateConnections(ctx context.Context, conn *stackconn.Conn, conns []sockdiag.Connection) error {
	var flat []sockdiag.Socket
	for _, c := range conns {
		flat = append(flat, c.Socket)
		flat = append(flat, c.Subflows...)
	}
	if err := annotate(ctx, conn, flat); err != nil {
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

// mptcpRow is a connection as mptcp writes it in JSON.
type mptcpRow struct {
	netstatRow
	Fallback bool         `json:"fallback"`
	Subflows []subflowRow `json:"subflows"`
}

type subflowRow struct {
	netstatRow
	Backup bool `json:"backup"`
}

func mptcpRows(conns []sockdiag.Connection) []mptcpRow {
	rows := make([]mptcpRow, 0, len(conns))
	for _, c := range conns {
		r := mptcpRow{netstatRow: newRow(c.Socket), Fallback: fellBack(c), Subflows: []subflowRow{}}
		for _, s := range c.Subflows {
			sub := subflowRow{netstatRow: newRow(s), Backup: s.Subflow != nil && s.Subflow.Flags.Backup()}
			sub.PID, sub.Process, sub.Processes = 0, "", nil // the connection's
			r.Subflows = append(r.Subflows, sub)
		}
		rows = append(rows, r)
	}
	return rows
}

func fellBack(c sockdiag.Connection) bool { return c.MPTCP != nil && c.MPTCP.Fallback }

func writeMPTCP(w io.Writer, conns []sockdiag.Connection) error {
	var b strings.Builder
	for i, c := range conns {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(headline(c) + "\n")
		if line := totals(c); line != "" {
			b.WriteString("  " + line + "\n")
		}
		if err := writeSubflows(&b, c.Subflows); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// headline names a connection: who, from where to where, how.
func headline(c sockdiag.Connection) string {
	words := []string{localAddr(c.Socket)}
	if c.State != sockdiag.Listen {
		words = append(words, "->", remoteAddr(c.Socket))
	}
	words = append(words, c.State.String())
	if p := firstProcess(c.Processes); p != "" {
		words = append(words, p)
	}
	if fellBack(c) {
		words = append(words, "- plain TCP: the peer or the path has no MPTCP")
	}
	return strings.Join(words, " ")
}

// totals is the connection's own line: what holds for all subflows together.
func totals(c sockdiag.Connection) string {
	i := c.MPTCP
	if i == nil || c.State == sockdiag.Listen {
		return ""
	}
	var parts []string
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	if !fellBack(c) {
		add("token %s", token(i.Token))
		parts = append(parts, plural(len(c.Subflows), "subflow"))
	}
	add("sent %s", bytes(i.BytesSent))
	add("received %s", bytes(i.BytesRecv))
	if i.BytesRetrans.N > 0 {
		add("reinjected %s", bytes(i.BytesRetrans))
	}
	return strings.Join(parts, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func writeSubflows(w io.Writer, subflows []sockdiag.Socket) error {
	if len(subflows) == 0 {
		return nil
	}
	t := cli.NewTable("IF", "LOCAL", "PEER", "STATE", ">RTT", ">CWND", ">SENT", ">RECV", ">RETR", "")
	for _, s := range subflows {
		i := s.TCP
		if i == nil || s.State == sockdiag.Listen { // what a listener has there says nothing
			i = &sockdiag.TCPInfo{}
		}
		mark := " "
		if s.Subflow != nil && s.Subflow.Flags.Backup() {
			mark = "backup"
		}
		t.Row(s.Iface, localAddr(s), remoteAddr(s), s.State.String(), micros(i.RTT), number(i.Cwnd),
			bytes(i.BytesSent), bytes(i.BytesRecv), number(i.TotalRetrans), mark)
	}
	var b strings.Builder
	if err := t.Write(&b); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintf(w, "  %s\n", strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
