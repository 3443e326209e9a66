// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// Egress returns the verb egress.
func Egress(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "egress [add RULE... | remove RULE...]",
		Short: "show or change the rules for destinations, and their results",
		Long: `egress shows the rules of "lklrun --allow" and "lklrun --egress", with the
numbers of queries and connections that each of them permitted, and the names
and the destinations that the program asked for. It lists up to 50 names and 50
destinations of each kind. The totals in -o json count all.`,
		Example: "  lklctl egress\n  lklctl egress -o json",
		Args:    verb.NoArgs,
		RunE: c.Query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			a, err := egressOf(ctx, conn)
			if err != nil {
				return fmt.Errorf("instance %q: %w", info.Name, err)
			}
			none := c.Empty("instance %q: the program has asked for nothing yet", info.Name)
			return c.Show(a, len(a.Rules)+len(a.Names)+len(a.Destinations), none, func(w io.Writer) error { return writeEgress(w, a) })
		}),
	}
	c.Flags(cmd.Flags(), true)
	c.EmptyFlag(cmd.Flags())
	verb.Document(cmd, egress.Account{})
	cmd.AddCommand(
		egressChange(c, "add", "add rules to a run", `add permits further destinations, in the form of "lklrun --allow". A new rule
for a name also permits the addresses to which the name has resolved.`, func(rules []string) egress.Change { return egress.Change{Add: rules} }),
		egressChange(c, "remove", "remove rules from a run", `remove removes rules, which are written as "lklctl egress" shows them.
Connections that exist continue.`, func(rules []string) egress.Change { return egress.Change{Remove: rules} }),
	)
	return cmd
}

// egressChange returns a verb that changes the rules.
func egressChange(c *verb.Call, name, short, long string, change func(rules []string) egress.Change) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " RULE...", Short: short, Long: long,
		Example: "  lklctl egress " + name + " pypi.org:443 10.0.0.0/8:5432/tcp",
		Args:    verb.SomeArgs("RULE"),
		RunE: c.Query(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
			var rules []string
			for _, arg := range args {
				a, err := config.ParseAllow(arg)
				if err != nil {
					return &exit.UsageError{Err: err}
				}
				rules = append(rules, a.String())
			}
			_, err := rpc.Do(ctx, conn, rpc.EgressChange, change(rules), nil)
			if refused := (*rpc.Error)(nil); errors.As(err, &refused) && refused.Usage {
				return &exit.UsageError{Err: err}
			}
			if err == nil && c.Output == cli.OutputJSON {
				err = cli.WriteJSON(c.Stdout, change(rules))
			}
			return err
		}),
	}
	c.Flags(cmd.Flags(), true)
	verb.Document(cmd, egress.Change{})
	return cmd
}

// egressOf asks for the account of a gateway and for its rules.
func egressOf(ctx context.Context, conn *stackconn.Conn) (*egress.Account, error) {
	a, err := rpc.Do(ctx, conn, rpc.Egress, struct{}{}, nil)
	if err == nil && a == nil {
		err = egress.ErrNoRules
	}
	if err != nil {
		return nil, err
	}
	for a.Rules = []egress.Rule{}; ; {
		p, err := rpc.Do(ctx, conn, rpc.EgressRules, len(a.Rules), nil)
		if err != nil {
			return nil, err
		}
		a.Policy, a.Rules = p.File, append(a.Rules, p.Rules...)
		if len(a.Rules) >= p.Total || len(p.Rules) == 0 {
			return a, nil
		}
	}
}

// writeEgress writes the rules, and what the program asked for.
func writeEgress(w io.Writer, a *egress.Account) error {
	if a.Policy != "" {
		if _, err := fmt.Fprintf(w, "policy: %s\n", a.Policy); err != nil {
			return err
		}
	}
	t := cli.NewTable("RULE", ">QUERIES", ">CONNECTIONS").Narrow()
	for _, r := range a.Rules {
		t.Row(r.Rule, fmt.Sprint(r.Queries), fmt.Sprint(r.Connections))
	}
	if len(a.Rules) > 0 {
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if len(a.Names)+len(a.Destinations) == 0 {
		return nil
	}
	if len(a.Rules) > 0 {
		fmt.Fprintln(w)
	}
	return egressTable(a).Write(w)
}

func egressTable(a *egress.Account) *cli.Table {
	result := map[bool]string{true: "allowed", false: "refused"}
	t := cli.NewTable("RESULT", ">COUNT", "WHAT", "DETAILS").Narrow()
	for n := range a.Names {
		x := &a.Names[n]
		details := x.Reason
		if len(x.Ignored) > 0 {
			details = "ignored " + strings.Join(x.Ignored, ", ")
		}
		t.Row(result[x.Allowed], fmt.Sprint(x.Count), "name "+x.Name, details)
	}
	for n := range a.Destinations {
		x := &a.Destinations[n]
		details := x.Reason
		if x.Name != "" {
			details = "for " + x.Name
		}
		t.Row(result[x.Allowed], fmt.Sprint(x.Count), x.String(), details)
	}
	return t
}
