// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// monitorRow is an event in the JSON output of monitor. monitor prints one document
// per line.
type monitorRow struct {
	mptcpevent.Event
	Iface   string `json:"iface,omitempty"`   // interface of the subflow, or of the local address
	PID     int    `json:"pid,omitempty"`     // ID of a process that has the connection; absent: not known
	Process string `json:"process,omitempty"` // name of this process
}

func monitorCommand(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "print MPTCP events as they occur",
		Long: `monitor prints the MPTCP events of a stack, with the names of ip-mptcp(8), until
Ctrl-C or the end of the instance. LOST means that some events are missing.`,
		Example: "  lklctl mptcp monitor\n  lklctl mptcp monitor -o json | jq -c 'select(.event == \"SF_CLOSED\")'",
		Args:    verb.NoArgs,
		RunE: c.Follow(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			w, err := mptcpevent.Open(ctx, conn)
			if errors.Is(err, stacknet.ErrNoPathManager) {
				return fmt.Errorf("instance %q: %w", info.Name, err)
			}
			if err != nil {
				return err
			}
			defer w.Close()
			cli.Note(c.Stderr, verb.Program, "listening for MPTCP events of instance %q; press Ctrl-C to stop", info.Name)
			m := &monitor{Call: c, ctx: ctx, conn: conn}
			if err := m.look(); err != nil {
				return err
			}
			err = w.Run(func(e mptcpevent.Event) {
				if err := m.tell(e); err != nil {
					cancel(err)
				}
			})
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}),
	}
	c.Flags(cmd.Flags(), true)
	verb.Document(cmd, monitorRow{})
	return cmd
}

// monitor adds the related objects to events.
type monitor struct {
	*verb.Call
	ctx   context.Context //nolint:containedctx // of the verb, in whose body it lives
	conn  *stackconn.Conn
	at    time.Time // time of the last query of the stack
	spent int       // number of queries in the present burst of connections
	names *stacknet.Names
	procs map[mptcpevent.Token]sockdiag.Process // a process of each connection at that time
}

// A query reads all connections. In a burst of new connections, each of the first
// few causes a query. After that there is one query per lookRest.
const (
	lookRest = time.Second / 2
	lookMost = 8
)

// mayLook reports whether a query is due.
func (m *monitor) mayLook() bool {
	rested := int(min(time.Since(m.at)/lookRest, lookMost))
	m.spent = max(0, m.spent-rested)
	return m.spent < lookMost
}

// look reads the stack's interfaces and the processes of the connections.
func (m *monitor) look() error {
	conns, err := sockdiag.List(m.ctx, m.conn, sockdiag.MPTCP)
	if err != nil {
		return err
	}
	if err := owners.Attribute(m.ctx, m.conn, conns); err != nil {
		return err
	}
	if m.names, err = stacknet.ReadNames(m.ctx, m.conn); err != nil {
		return err
	}
	m.spent++
	m.at, m.procs = time.Now(), map[mptcpevent.Token]sockdiag.Process{}
	for _, s := range conns {
		if s.MPTCP != nil && s.MPTCP.Token.Known && len(s.Processes) > 0 {
			m.procs[mptcpevent.Token(s.MPTCP.Token.N)] = s.Processes[0]
		}
	}
	return nil
}

func (m *monitor) tell(e mptcpevent.Event) error {
	row := monitorRow{Event: e}
	p, known := m.procs[e.Token]
	if !known && e.Token != 0 && e.Kind != mptcpevent.Closed && m.mayLook() {
		if err := m.look(); err != nil {
			return err
		}
		p = m.procs[e.Token]
	}
	row.PID, row.Process = p.PID, p.Comm
	if e.Local.IsValid() {
		row.Iface = m.names.Of(e.IfIndex, e.Local.Addr())
	}
	if m.Output == cli.OutputJSON {
		return json.NewEncoder(m.Stdout).Encode(row) // without indentation, so that it is one line
	}
	b := page{columns: cli.Columns(m.Stdout)}
	wrap(&b, 0, 13, row.words().joined(" "))
	_, err := io.WriteString(m.Stdout, b.String())
	return err
}

// words returns the parts of the event's line.
func (r monitorRow) words() facts {
	f := facts{r.Time.Format("15:04:05.000"), string(r.Kind)}
	if r.Token != 0 {
		f = append(f, r.Token.String())
	}
	f.add("%s", r.Iface)
	if r.Local.IsValid() {
		f = append(f, r.Local.String())
	}
	switch {
	case r.Local.IsValid() && r.Remote.IsValid():
		f = append(f, "->", r.Remote.String())
	case r.Remote.IsValid(): // the address announced by the peer
		f = append(f, r.Remote.String())
	}
	if r.LocalID != nil && r.RemoteID != nil {
		f = append(f, fmt.Sprintf("address %d to %d", *r.LocalID, *r.RemoteID))
	} else if r.RemoteID != nil {
		f = append(f, fmt.Sprintf("address %d", *r.RemoteID))
	}
	for _, x := range []struct {
		is   bool
		word string
	}{{r.Backup, "backup"}, {r.Server, "server side"}, {r.DenyJoinID0, "no joins to address 0"}} {
		if x.is {
			f = append(f, x.word)
		}
	}
	if r.Errno != 0 {
		f = append(f, r.Errno.Error())
	}
	f.add("reset: %s", r.ResetWords())
	if r.Process != "" {
		f = append(f, fmt.Sprintf("%s(%d)", r.Process, r.PID))
	}
	return f
}
