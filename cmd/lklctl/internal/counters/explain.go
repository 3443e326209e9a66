// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/counters"
)

func explainCommand(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [PATTERN...]",
		Short: "explain what counters count",
		Long: `explain prints a sentence for each counter whose name contains PATTERN or
matches it as a glob, or for all counters. It needs no instance.`,
		Example: `  lklctl counters explain TcpExtTCPLossProbes
  lklctl counters explain eth0.rx_dropped
  lklctl counters explain 'MPTcpExt*Join*'`,
		RunE: func(_ *cobra.Command, args []string) error {
			for _, p := range args {
				if _, err := path.Match(p, ""); err != nil {
					return exit.Usagef("pattern %q: not a valid glob; expected one such as 'Tcp*Retrans*'", p)
				}
			}
			all := counters.ExplainAll(args)
			return c.Show(all, len(all), c.Nothing("no counter matches %s", strings.Join(args, " ")), func(w io.Writer) error {
				t := cli.NewTable("NAME", "WHAT IT COUNTS").Narrow()
				for _, e := range all {
					what := e.Meaning
					if len(e.Related) > 0 {
						what += fmt.Sprintf(" See also %s.", strings.Join(e.Related, ", "))
					}
					t.Row(e.Name, what)
				}
				return t.Write(w)
			})
		},
		ValidArgsFunction: func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			for _, e := range counters.ExplainAll(nil) {
				if strings.HasPrefix(e.Name, toComplete) {
					names = append(names, e.Name)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags(cmd.Flags(), true)
	verb.Document(cmd, []counters.Explanation{})
	return cmd
}
