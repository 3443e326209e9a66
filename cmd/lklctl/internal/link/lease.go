// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/dhcp"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Lease returns the verb lease.
func Lease(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease [renew|release IF]",
		Short: "show, renew or release leases",
		Long: `lease shows the addresses that interfaces obtained by DHCP, DHCPv6 and router
advertisements. renew requests them again; release returns them until renew.`,
		Example: "  lklctl lease\n  lklctl lease -o json\n  lklctl lease renew eth0",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case !slices.Contains([]string{rpc.LeaseRenew, rpc.LeaseRelease}, args[0]):
				return exit.Usagef("%q; expected renew or release; see %s --help", args[0], cmd.CommandPath())
			case len(args) == 1:
				return exit.Usagef("no interface given; see %s --help", cmd.CommandPath())
			case len(args) > 2:
				return verb.NoArgs(cmd, args[2:])
			}
			return nil
		},
		RunE: c.Query(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
			var what rpc.LeaseArgs
			if len(args) == 2 {
				what = rpc.LeaseArgs{Do: args[0], Link: args[1]}
			}
			all, err := rpc.Do(ctx, conn, rpc.Lease, what, nil)
			var refused *rpc.Error
			if errors.As(err, &refused) && refused.Usage {
				return exit.Usagef("%v", refused)
			}
			if err != nil {
				return err
			}
			return c.Show(all, len(all), c.Empty("no interface uses DHCP, DHCPv6 or router advertisements"), leaseTable(all, time.Now()).Write)
		}),
	}
	c.Flags(cmd.Flags(), true)
	c.EmptyFlag(cmd.Flags())
	return cmd
}

func leaseTable(all []dhcp.Status, now time.Time) *cli.Table {
	t := cli.NewTable("IF", "BY", "STATE", "ADDRESS", "SERVER", ">RENEW", ">EXPIRES", "ROUTES", "DNS")
	in := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return text.ShortDuration(at.Sub(now))
	}
	for _, s := range all {
		row := []string{s.Link, s.Proto, s.State}
		if l := s.Lease; l != nil {
			var addr, server string
			if l.Addr.IsValid() {
				addr = l.Addr.String()
			}
			if l.Server.IsValid() {
				server = l.Server.String()
			}
			var routes, dns []string
			for _, r := range l.Routes {
				text := r.Dst.String()
				if r.GW.IsValid() {
					text += ">" + r.GW.String()
				}
				routes = append(routes, text)
			}
			for _, a := range l.DNS {
				dns = append(dns, a.String())
			}
			row = append(row, addr, server, in(l.Renew), in(l.Expires), strings.Join(routes, ","), strings.Join(dns, ","))
		}
		t.Row(row...)
	}
	return t
}
