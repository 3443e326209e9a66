// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/instance"
)

// Remove returns the verb rm.
func Remove(c *verb.Call) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "rm NAME... | --all",
		Short: "delete the records of ended runs",
		Long: `rm deletes what a run of lklrun --detach has left: its status and its output.
lklrun keeps the records of the last 20 runs. "lklctl list -a" shows them.`,
		Example:           "  lklctl rm web\n  lklctl rm --all",
		ValidArgsFunction: completeEnded(c, false),
		Args: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return exit.Usagef("expected NAME... or --all; see %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if c.Far != nil {
				return exit.Usagef("--device %s: rm deletes only records of this machine; a device keeps nothing after a run", c.Device)
			}
			if all {
				records, err := c.Place.Ended()
				if err != nil {
					return err
				}
				for _, r := range records {
					args = append(args, r.Name)
				}
			}
			var errs []error
			for _, name := range args {
				errs = append(errs, forget(c, name, all))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete the records of all ended runs")
	cmd.Flags().StringVar(&c.Device, "device", c.Device, "")
	verb.Must(cmd.Flags().MarkHidden("device"))
	return cmd
}

// forget deletes a record. With all, it may have vanished in the meantime.
func forget(c *verb.Call, name string, all bool) error {
	if err := instance.CheckName(name); err != nil {
		return &exit.UsageError{Err: err}
	}
	found, err := c.Place.Forget(name)
	switch {
	case err != nil || found || all:
		return err
	case c.Running(name):
		return exit.Usagef("instance %q is running; stop it with lklctl stop %[1]s", name)
	}
	return c.Nothing("no run %q has ended; lklctl list -a shows those that have", name)
}
