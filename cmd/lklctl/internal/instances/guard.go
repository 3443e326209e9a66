// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// Guard returns the verb guard.
func Guard(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "show the rules that protect a shared address",
		Long: `guard shows the ports that a stack uses at the host's addresses, and the rules
of the host's firewall that hide packets to these ports from the host.`,
		Example: "  lklctl guard\n  lklctl -n web guard -o json",
		Args:    verb.NoArgs,
		RunE: c.Query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			var st guard.Status
			if conn.Hello().ABI != ctlproto.CTL_ABI_HOST { // the host's own kernel has no guard
				var err error
				if st, err = rpc.Do(ctx, conn, rpc.Guard, struct{}{}, nil); err != nil {
					return fmt.Errorf("instance %q: %w", info.Name, err)
				}
			}
			return c.Show(st, len(st.Links), c.Empty("instance %q: no interface shares an address with the host", info.Name), func(w io.Writer) error {
				return writeGuard(w, &st)
			})
		}),
	}
	c.Flags(cmd.Flags(), true)
	c.EmptyFlag(cmd.Flags())
	verb.Document(cmd, guard.Status{})
	return cmd
}

func writeGuard(w io.Writer, st *guard.Status) error {
	t := cli.NewTable("DEVICE", "ADDRESSES", "CONNECTIONS", "SERVERS")
	var servers []string
	for _, l := range slices.Sorted(slices.Values(st.Ports.Listen)) {
		servers = append(servers, strconv.Itoa(int(l)))
	}
	for _, l := range st.Links {
		var addrs []string
		for _, a := range l.Addrs {
			addrs = append(addrs, a.String())
		}
		t.Row(l.Device, strings.Join(addrs, " "), fmt.Sprintf("%d-%d", st.Ports.First, st.Ports.Last), strings.Join(servers, " "))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if st.Method == "" {
		_, err := fmt.Fprintf(w, "\nno rules (--rst-guard %s)\n", config.GuardOff)
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s: hid %d packets (%s) from the host; restored the rules %d times\n\n%s\n",
		st.Method, st.Kept.Packets, text.Scaled(float64(st.Kept.Bytes), "B"), st.Restored, strings.Join(st.Rules, "\n"))
	return err
}
