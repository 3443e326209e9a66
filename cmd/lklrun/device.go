// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/remote/ondevice"
)

// deviceCommand returns the device's half of --device: the verbs that lklrun on
// another machine calls on this machine. They are not for users.
func deviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "device",
		Short:  "do the work of --device on the device",
		Hidden: true,
		Args:   noArgs,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usagef("device: only lklrun itself uses this verb; use --device")
		},
	}
	node := false
	cmd.PersistentFlags().BoolVar(&node, "node", false, "show the runs of the node that this container is on")
	add := func(use, short string, args cobra.PositionalArgs, do func(cmd *cobra.Command, args []string) error) *cobra.Command {
		sub := &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			place, err := ondevice.Locate()
			if err != nil {
				return err
			}
			if node {
				if err := ondevice.OnNode(); err != nil {
					return err
				}
			}
			if err := place.SetUp(); err != nil {
				return err
			}
			return do(cmd, args)
		}}
		cmd.AddCommand(sub)
		return sub
	}
	add("run", "serve a session over the standard descriptors", noArgs, func(cmd *cobra.Command, _ []string) error {
		return ondevice.Run(cmd.Context(), os.Stdin, os.Stdout)
	})
	with := 0
	add("connect [NAME]", "connect the standard descriptors to a control socket", cobra.MaximumNArgs(1), func(_ *cobra.Command, args []string) error {
		return ondevice.Connect(append(args, "")[0], with, os.Stdin, os.Stdout)
	}).Flags().IntVar(&with, "with", 0, "disconnect when the process with this id ends")
	follow := false
	add("list", "list the instances as one line of JSON", noArgs, func(*cobra.Command, []string) error {
		if follow {
			return ondevice.Follow(os.Stdin, os.Stdout)
		}
		return ondevice.List(os.Stdout)
	}).Flags().BoolVar(&follow, "follow", false, "repeat after each change, until standard input ends")
	add("read NAME FILE...", "write files of a run directory as JSON", cobra.MinimumNArgs(2), func(cmd *cobra.Command, args []string) error {
		return ondevice.Read(cmd.Context(), args[0], args[1:], os.Stdout)
	})
	add("keep NAME", "store the last counters in a run directory", cobra.ExactArgs(1), func(_ *cobra.Command, args []string) error {
		return ondevice.Keep(args[0], os.Stdin)
	})
	add("program NAME COMMAND [ARG]...", "run a program on the stack of an instance", cobra.MinimumNArgs(2), func(cmd *cobra.Command, args []string) error {
		end, err := ondevice.Program(cmd.Context(), args[0], args[1:], func(format string, args ...any) { cli.Note(os.Stderr, self, format, args...) })
		if err != nil {
			return errRun{err}
		}
		end.Exit()
		return nil
	}).Flags().SetInterspersed(false) // arguments after the command belong to the command
	add("install FROM TO", "install an uploaded bundle", cobra.ExactArgs(2), func(_ *cobra.Command, args []string) error {
		return ondevice.Install(args[0], args[1])
	})
	end := false
	lend := add("lend SOCKET [UID IF...]", "open interfaces for runs of another user", cobra.MinimumNArgs(1), func(cmd *cobra.Command, args []string) error {
		if end {
			return ondevice.StopFDs(args[0])
		}
		if len(args) < 3 {
			return cli.Usagef("device lend: expected SOCKET UID IF...")
		}
		uid, err := strconv.ParseUint(args[1], 10, 31)
		if err != nil {
			return cli.Usagef("device lend: %q; expected the number of a user", args[1])
		}
		return ondevice.ServeFDs(cmd.Context(), args[0], int(uid), args[2:])
	})
	lend.Flags().BoolVar(&end, "end", false, "end the process that serves SOCKET")
	add("take SOCKET COMMAND [ARG]...", "receive interfaces, and execute a command with them", cobra.MinimumNArgs(2), func(_ *cobra.Command, args []string) error {
		return ondevice.Take(args[0], args[1:])
	}).Flags().SetInterspersed(false)
	add("cleanup", "undo what killed runs left behind", noArgs, func(cmd *cobra.Command, _ []string) error {
		return cleanupAll(cmd.Context())
	})
	add("remove", "remove the bundles and everything beside them", noArgs, func(*cobra.Command, []string) error {
		place, err := ondevice.Locate()
		if err != nil {
			return err
		}
		return place.Remove()
	})
	return cmd
}
