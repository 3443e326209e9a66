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
	var devices deviceFlags
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "undo what killed runs left behind",
		Long: `cleanup undoes changes to the host that remain because lklrun and its stack host
were killed. It does not affect running instances.`,
		Example: "  sudo lklrun cleanup\n  lklrun cleanup --dir /run/user/1000/lklrun/web\n  lklrun cleanup --device adb",
		Args:    noArgs,
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
	cmd.Flags().StringVar(&dir, "dir", "", "clean up only the run with the run directory `DIR`")
	devices.add(cmd.Flags(), "clean up this `DEVICE`, and remove lklrun from it unless an instance runs there")
	return cmd
}

func cleanupAll(ctx context.Context) error {
	done, err := undo.CleanupAll(ctx)
	for _, name := range done.Done {
		fmt.Printf("%s: cleaned up\n", name)
	}
	for _, r := range done.Running {
		cli.Note(os.Stderr, self, "%s: is running (pid %d), so it was not cleaned up", r.Name, r.PID)
	}
	return err
}

func cleanupDir(cmd *cobra.Command, dir string) error {
	if _, err := os.Lstat(dir); err != nil {
		return cli.Usagef("--dir %q: no such directory", dir)
	}
	if !instance.IsRunDir(dir) {
		return cli.Usagef("--dir %q: not a run directory; expected one in %s", dir, instance.Root())
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
