// SPDX-License-Identifier: Apache-2.0

// Package instances contains the verbs about instances and their programs: list, wait,
// stop, exec, app, account, guard and bundle.
package instances

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
)

// List returns the verb list.
func List(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ps", "ls"},
		Short:   "list instances and the leftovers of killed ones (ps, ls)",
		Long: `list shows the instances of this user. "leftover" marks an instance that ended
without cleanup; lklrun cleanup removes it.`,
		Example: "  lklctl list\n  lklctl list -o json",
		Args:    verb.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all := []instance.Info{} // so that JSON has [] instead of null
			for _, place := range append(c.Places, c.Place)[:max(len(c.Places), 1)] {
				some, err := place.List()
				if errors.As(err, new(*instance.PlaceError)) {
					return &exit.UsageError{Err: err}
				}
				if err != nil {
					return err
				}
				all = append(all, some...)
			}
			columns := []string{"NAME", ">PID", "STACK", "KERNEL", ">AGE", "INTERFACES", "COMMAND"}
			if len(c.Places) > 0 {
				columns = slices.Insert(columns, 0, "DEVICE")
			}
			t := cli.NewTable(columns...).Narrow()
			for _, i := range all {
				row := listRow(i, time.Now())
				if len(c.Places) > 0 {
					row = slices.Insert(row, 0, i.Device)
				}
				t.Row(row...)
			}
			return c.Show(all, len(all), c.Empty("no instance is running"), t.Write)
		},
	}
	c.Flags(cmd.Flags(), true)
	c.EmptyFlag(cmd.Flags())
	verb.Document(cmd, []instance.Info{})
	return cmd
}

func listRow(i instance.Info, now time.Time) []string {
	pid, age := "", ""
	if !i.Running {
		pid, age = "leftover", ""
	} else {
		if i.TargetPID > 0 {
			pid = fmt.Sprint(i.TargetPID)
		}
		if !i.Started.IsZero() {
			age = text.ShortDuration(now.Sub(i.Started))
		}
	}
	var ifs []string
	for _, f := range i.Interfaces {
		s := f.Name + "=" + f.Type
		if f.Host != "" {
			s += ":" + f.Host
		}
		ifs = append(ifs, s)
	}
	return []string{i.Name, pid, i.Stack, i.Kernel, age, strings.Join(ifs, ","), text.Quote(i.Command)}
}
