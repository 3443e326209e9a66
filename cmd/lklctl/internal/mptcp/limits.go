// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// limitsRow contains the limits in JSON.
type limitsRow struct {
	Subflows        int `json:"subflows"`          // maximum number of additional subflows per connection
	AddAddrAccepted int `json:"add_addr_accepted"` // maximum number of addresses announced by the peer to which a connection creates subflows
}

func limitsCommand(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limits [get | set [subflows N] [add_addr_accepted N]]",
		Short: "show or set the limits of MPTCP connections",
		Long: `limits shows or sets how many additional subflows a connection may have, and how
many announced addresses it uses. Each limit is 0 to 8.`,
		Example: "  lklctl mptcp limits\n  lklctl mptcp limits set subflows 2",
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := parseLimits(cmd, args)
			return err
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		change, err := parseLimits(cmd, args)
		if err != nil {
			return err
		}
		by := c.Query
		if change != nil {
			by = c.Change
		}
		return onStack(c, by, func(_ context.Context, n opened, _ []string) error {
			limits, err := n.Limits()
			if err != nil {
				return err
			}
			if change != nil {
				change(&limits)
				if err := n.Do(stacknet.SetLimits(limits))[0]; err != nil {
					return endpointError("setting the MPTCP limits", err)
				}
				if limits, err = n.Limits(); err != nil {
					return err
				}
			}
			if c.Output == cli.OutputJSON {
				return cli.WriteJSON(c.Stdout, limitsRow{limits.Subflows, limits.AddAddrAccepted})
			}
			_, err = fmt.Fprintf(c.Stdout, "subflows %d add_addr_accepted %d\n", limits.Subflows, limits.AddAddrAccepted)
			return err
		})(cmd, args)
	}
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	verb.Document(cmd, limitsRow{})
	return cmd
}

// parseLimits returns a function that makes the requested change, or nil if there
// is none.
func parseLimits(cmd *cobra.Command, args []string) (func(*stacknet.MPTCPLimits), error) {
	w := verb.Words{Cmd: cmd, Left: args}
	switch first := w.Next(); {
	case first == "" || first == "get" && len(w.Left) == 0:
		return nil, nil
	case first == "get":
		return nil, w.Unexpected(w.Next())
	case first != "set":
		return nil, w.Unexpected(first)
	case len(w.Left) == 0:
		return nil, exit.Usagef("no limit given; see %s --help", cmd.CommandPath())
	}
	const most = 8 // MPTCP_PM_ADDR_MAX, net/mptcp/protocol.h
	var changes []func(*stacknet.MPTCPLimits)
	for len(w.Left) > 0 {
		key := w.Next()
		if key != "subflows" && key != "subflow" && key != "add_addr_accepted" {
			return nil, w.Unexpected(key)
		}
		n, err := w.Number(key, 0, most)
		if err != nil {
			return nil, err
		}
		changes = append(changes, func(m *stacknet.MPTCPLimits) {
			if key == "add_addr_accepted" {
				m.AddAddrAccepted = n
			} else {
				m.Subflows = n
			}
		})
	}
	return func(m *stacknet.MPTCPLimits) {
		for _, change := range changes {
			change(m)
		}
	}, nil
}
