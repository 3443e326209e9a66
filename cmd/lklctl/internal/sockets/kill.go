// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Kill returns the verb kill.
func Kill(c *verb.Call) *cobra.Command {
	var o netstatOptions
	cmd := &cobra.Command{
		Use:   "kill [-latuwM46] FILTER",
		Short: "end connections at once, as ss -K does",
		Long: `kill resets the TCP connections that match FILTER, closes other sockets, and
lists them. A filter is required; "lklctl help filters" describes it.`,
		Example: `  lklctl kill dst 192.0.2.7
  lklctl kill -t dport = :443 and src 10.1.0.2
  lklctl kill state time-wait`,
		Args: func(_ *cobra.Command, args []string) error {
			if err := o.parse(args); err != nil {
				if len(args) == 1 {
					return fmt.Errorf("%w; to end the instance %s: lklctl stop %s", err, args[0], args[0])
				}
				return err
			}
			return o.mayKill()
		},
		ValidArgsFunction: c.Complete(filterWords),
		RunE: c.ChangeWithin(verb.QueryLimit, "ss -K", func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			return killSockets(ctx, c, info, conn, &o)
		}),
	}
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	verb.Document(cmd, []netstatRow{})
	o.selecting(cmd.Flags())
	return cmd
}

// mayKill returns an error if the user would end all sockets by mistake.
func (o *netstatOptions) mayKill() error {
	if o.filter.Empty() {
		return exit.Usagef("no filter given; expected one such as: dst 192.0.2.7")
	}
	if o.unix || o.packet || len(o.families) > 0 {
		return exit.Usagef("-x, -0 and -f: only TCP, UDP, raw IP and MPTCP sockets can be ended; remove these flags")
	}
	return nil
}

// killSockets ends the selected sockets.
func killSockets(ctx context.Context, c *verb.Call, info *instance.Info, conn *stackconn.Conn, o *netstatOptions) error {
	if !o.listening && !o.all {
		o.connected = true
	}
	meant, err := gather(ctx, conn, o)
	if err != nil {
		return err
	}
	victims, connections, err := withSubflows(ctx, conn, meant)
	if err != nil {
		return err
	}
	killed, err := sockdiag.Kill(ctx, conn, victims)
	none := c.Nothing("instance %q has no matching sockets", info.Name)
	if len(killed) == 0 && err != nil {
		return err
	}
	if serr := c.Show(netstatRows(killed), len(killed), none, func(out io.Writer) error {
		return writeNetstat(out, killed, o)
	}); serr != nil {
		return serr
	}
	if c.Output == cli.OutputTable {
		cli.Note(c.Stderr, verb.Program, "%s", killedWords(len(killed), connections))
	}
	return err
}

// killedWords describes the ended sockets.
func killedWords(sockets, connections int) string {
	s := text.Plural(sockets, "socket") + " ended"
	if connections > 0 {
		s += fmt.Sprintf("; MPTCP connections that have no subflows left and end after net.mptcp.close_timeout seconds: %d", connections)
	}
	return s
}

// withSubflows replaces MPTCP connections by their subflows, because the kernel
// cannot end the connections themselves. The result contains each socket once.
func withSubflows(ctx context.Context, conn *stackconn.Conn, meant []sockdiag.Socket) (victims []sockdiag.Socket, connections int, err error) {
	seen := map[uint64]bool{}
	var mptcp []sockdiag.Socket
	for _, s := range meant {
		switch s.Proto {
		case sockdiag.MPTCP:
			mptcp = append(mptcp, s)
		case sockdiag.ICMP: // sock_diag does not support it
		default:
			seen[s.Cookie] = true
			victims = append(victims, s)
		}
	}
	if len(mptcp) == 0 {
		return victims, 0, nil
	}
	tcp, err := sockdiag.List(ctx, conn, sockdiag.TCP)
	if err != nil {
		return nil, 0, err
	}
	if err := Annotate(ctx, conn, tcp); err != nil {
		return nil, 0, err
	}
	for _, c := range sockdiag.Tree(mptcp, tcp) {
		if c.MPTCP == nil || !c.MPTCP.Fallback {
			connections++
		}
		for _, s := range c.Subflows {
			if !seen[s.Cookie] {
				seen[s.Cookie] = true
				victims = append(victims, s)
			}
		}
	}
	return victims, connections, nil
}
