// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/undo"
)

func cleanupCommand() *cobra.Command {
	var dir string
	var devices far
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "undo the leftovers of killed runs",
		Long: `Undo what runs left that could not do so themselves, because lklrun and its
stack host were killed at once. Runs in progress are named and left alone; for
one whose lklrun is gone its end is awaited, for 5 seconds at most.

A run is cleaned up in the network namespace that it changed. Elsewhere cleanup
changes nothing, and says where to call it. What cannot be undone stays
recorded, for the next call.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir != "" {
				return cleanupDir(cmd, dir)
			}
			if done, err := devices.cleanup(cmd.Context()); done {
				return err
			}
			return cleanupAll(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "only the run with this run directory, `DIR`")
	devices.add(cmd.Flags(), "there, and take lklrun away from it unless something runs: the `DEVICE`, as for a run")
	return cmd
}

func cleanupAll(ctx context.Context) error {
	done, err := undo.CleanupAll(ctx)
	for _, name := range done.Done {
		fmt.Printf("%s: cleaned up\n", name)
	}
	for _, r := range done.Running {
		cli.Note(os.Stderr, self, "%s runs (pid %d), so it was left alone", r.Name, r.PID)
	}
	return err
}

func cleanupDir(cmd *cobra.Command, dir string) error {
	if _, err := os.Lstat(dir); err != nil {
		return cli.Usagef("--dir %q: there is no such run directory", dir)
	}
	if !instance.IsRunDir(dir) {
		return cli.Usagef("--dir %q: no run directory; those lie in %s", dir, instance.Root())
	}
	if err := instance.CheckOwn(dir); err != nil {
		return cli.Usagef("--dir %q: %w", dir, err)
	}
	err := undo.Cleanup(cmd.Context(), dir)
	var running *instance.RunningError
	if errors.As(err, &running) {
		return fmt.Errorf("%s: in use by the running instance %q (pid %d)", dir, running.Name, running.PID)
	}
	return err
}
