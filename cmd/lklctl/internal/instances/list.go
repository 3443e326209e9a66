// SPDX-License-Identifier: Apache-2.0

// Package instances contains the verbs about instances and their programs: list, wait,
// stop, exec, app, account, guard and bundle.
package instances

import (
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
	var ended, netns bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ps", "ls"},
		Short:   "list instances and the leftovers of killed ones (ps, ls)",
		Long: `list shows the instances of this user. "leftover" marks an instance that ended
without cleanup; lklrun cleanup removes it. With -a, list also shows how runs
of lklrun --detach ended. With --netns, it shows the network namespaces that
programs have made; the flag --netns of other verbs, such as netstat, capture
and sysctl, selects one.`,
		Example: "  lklctl list\n  lklctl list -a\n  lklctl list --json\n  lklctl list --netns",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if netns && ended {
				return exit.Usagef("-a and --netns conflict; choose one")
			}
			if netns {
				return listNetns(cmd.Context(), c)
			}
			all := []instance.Info{} // so that JSON has [] instead of null
			for _, place := range append(c.Places, c.Place)[:max(len(c.Places), 1)] {
				some, err := place.List()
				if err != nil {
					return err
				}
				all = append(all, some...)
				if !ended {
					continue
				}
				if some, err = place.Ended(); err != nil {
					return err
				}
				all = append(all, superseded(some, all)...)
			}
			columns := []string{"NAME", ">PID", "STACK", "KERNEL", ">AGE", "INTERFACES", "COMMAND"}
			if ended {
				columns = slices.Insert(columns, 2, "END", ">SINCE")
			}
			if len(c.Places) > 0 {
				columns = slices.Insert(columns, 0, "DEVICE")
			}
			t := cli.NewTable(columns...).Narrow()
			for _, i := range all {
				row := listRow(i, time.Now())
				if ended {
					row = slices.Insert(row, 2, endCells(i, time.Now())...)
				}
				if len(c.Places) > 0 {
					row = slices.Insert(row, 0, i.Device)
				}
				t.Row(row...)
			}
			none := c.Empty("no instance is running")
			if ended {
				none = c.Empty("no instance is running, and no run in the background has left a record")
			}
			return c.Show(all, len(all), none, t.Write)
		},
	}
	c.Flags(cmd.Flags(), true)
	c.EmptyFlag(cmd.Flags())
	cmd.Flags().BoolVarP(&ended, "all", "a", false, "include runs in the background that have ended")
	cmd.Flags().BoolVar(&netns, "netns", false, "show the network namespaces that programs of the runs have made")
	verb.Document(cmd, []instance.Info{})
	verb.DocumentWith(cmd, "--netns", []netnsRow{})
	return cmd
}

// superseded returns the records of runs whose name no present instance has.
func superseded(records, present []instance.Info) []instance.Info {
	return slices.DeleteFunc(records, func(r instance.Info) bool {
		return slices.ContainsFunc(present, func(i instance.Info) bool { return i.Name == r.Name && i.Device == r.Device })
	})
}

// endCells returns how an instance has ended, and when.
func endCells(i instance.Info, now time.Time) []string {
	if i.Ended == nil {
		return []string{"", ""}
	}
	return []string{i.Ended.String(), text.ShortDuration(now.Sub(i.Ended.Time))}
}

func listRow(i instance.Info, now time.Time) []string {
	pid, age := "", ""
	switch {
	case i.Ended != nil:
		age = text.ShortDuration(i.Ended.Time.Sub(i.Started))
	case !i.Running:
		pid, age = "leftover", ""
	default:
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
	command := text.Quote(i.Command)
	if i.Pod != nil {
		command = "pod " + i.Pod.String() // the command of the run only waits
	}
	return []string{i.Name, pid, i.Stack, i.Kernel, age, strings.Join(ifs, ","), command}
}
