// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Account returns the verb account.
func Account(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "show which processes used which stack",
		Long: `account shows for each process of an instance its sockets, bytes, connections
and peers, and why connections are plain TCP.`,
		Example: "  lklctl account\n  lklctl account -o json",
		Args:    verb.NoArgs,
		RunE: c.Query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			stats, err := conn.Stats(ctx)
			if err != nil {
				return fmt.Errorf("instance %q: %w", info.Name, err)
			}
			a := account.Parse(stats)
			return c.Show(a, len(a.Processes), c.Empty("instance %q: no process has used the network yet", info.Name), func(w io.Writer) error {
				return writeAccount(w, a)
			})
		}),
	}
	c.Flags(cmd.Flags(), true)
	c.EmptyFlag(cmd.Flags())
	verb.Document(cmd, account.Account{})
	return cmd
}

func writeAccount(w io.Writer, a *account.Account) error {
	if err := accountTable(a).Write(w); err != nil {
		return err
	}
	for _, h := range a.Hosted {
		if _, err := fmt.Fprintf(w, "%s: %s on the host's stack\n", h.Addr, text.Plural(int(h.Sockets), "socket")); err != nil {
			return err
		}
	}
	return nil
}

func accountTable(a *account.Account) *cli.Table {
	t := cli.NewTable(">PID", "COMMAND", ">STACK", ">HOST", ">REFUSED", ">FOREIGN", ">RECV", ">SENT", "CONNECTIONS").Narrow()
	for n := range a.Processes {
		p := &a.Processes[n]
		pid := fmt.Sprint(p.PID)
		if p.PID == 0 {
			pid = ""
		} else if p.Ended {
			pid = "ended " + pid
		}
		t.Row(pid, p.Command, fmt.Sprint(p.Stack), fmt.Sprint(p.Host), fmt.Sprint(p.Refused), fmt.Sprint(p.Foreign),
			text.Scaled(float64(p.Received), "B"), text.Scaled(float64(p.Sent), "B"), p.Connections())
		for _, name := range p.PeerNames(3) {
			t.Below("  with " + name + "\n")
		}
	}
	return t
}
