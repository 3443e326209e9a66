// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/link/user/gateway"
)

func version() string {
	v := cli.Version(self)
	if !gateway.Available {
		v += ", without the user-mode gateway"
	}
	return v
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  noArgs,
		Run:   func(*cobra.Command, []string) { fmt.Println(version()) },
	}
}

// noArgs rejects arguments with a one-line error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usagef("%s: unexpected argument %q", cmd.Name(), args[0])
	}
	return nil
}
