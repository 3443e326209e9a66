// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Addr returns the verb addr.
func Addr(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "addr [add|del ADDRESS/PREFIX NAME|group N]",
		Short: "show, add or delete addresses of the stack's interfaces",
		Long:  "addr shows, adds or deletes addresses of the stack's interfaces.",
		Example: `  lklctl addr
  lklctl addr add 10.1.0.7/24 eth1
  lklctl addr del 10.0.0.1/24 group 7`,
		Args: verb.NoArgs,
		RunE: c.Query(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ []string) error {
			links, err := stacknet.Links(ctx, conn)
			if err != nil {
				return err
			}
			addrs, err := stacknet.Addresses(ctx, conn)
			if err != nil {
				return err
			}
			names := stacknet.NewNames(links, addrs)
			type row struct {
				Interface string `json:"interface"`
				Address   string `json:"address"`
			}
			rows := []row{}
			t := cli.NewTable("INTERFACE", "ADDRESS")
			for _, a := range addrs {
				r := row{names.Of(a.IfIndex, a.Prefix.Addr()), a.Prefix.String()}
				rows = append(rows, r)
				t.Row(r.Interface, r.Address)
			}
			if c.Output == cli.OutputJSON {
				return cli.WriteJSON(c.Stdout, rows)
			}
			return t.Write(c.Stdout)
		}),
	}
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	cmd.AddCommand(
		addrChangeCommand(c, "add", "add an address to an interface or a group", false),
		addrChangeCommand(c, "del", "delete an address from an interface or a group", true),
	)
	return cmd
}

func addrChangeCommand(c *verb.Call, name, short string, del bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " ADDRESS/PREFIX NAME|group N",
		Short: short,
		Long: strings.ToUpper(short[:1]) + short[1:] + `. If the stack refuses some
interfaces of a group, lklctl reports the first refusal and keeps the other
changes.`,
		Example: "  lklctl addr " + name + " 10.1.0.7/24 eth1\n  lklctl addr " + name + " 10.0.0.1/24 group 7",
		Args: func(cmd *cobra.Command, args []string) error {
			_, _, err := parseAddr(cmd, args)
			return err
		},
	}
	cmd.RunE = c.Change(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
		p, target, err := parseAddr(cmd, args)
		if err != nil {
			return err
		}
		n, err := stacknet.SetAddress(ctx, conn, target, p, del)
		return changed(c, target, n, err)
	})
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	return cmd
}

func parseAddr(cmd *cobra.Command, args []string) (netip.Prefix, stacknet.Target, error) {
	w := verb.Words{Cmd: cmd, Left: args}
	word := w.Next()
	if word == "" {
		return netip.Prefix{}, stacknet.Target{}, exit.Usagef("no ADDRESS/PREFIX given; see %s --help", cmd.CommandPath())
	}
	p, err := netip.ParsePrefix(word)
	if err != nil || p.Addr().Is4In6() {
		return p, stacknet.Target{}, exit.Usagef("%q: expected ADDRESS/PREFIX, such as 192.0.2.1/24", word)
	}
	target, err := parseTarget(&w)
	if err == nil && len(w.Left) > 0 {
		err = w.Unexpected(w.Next())
	}
	return p, target, err
}
