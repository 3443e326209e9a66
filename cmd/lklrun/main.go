// SPDX-License-Identifier: Apache-2.0

// Command lklrun runs a program on a network stack of the user's choice.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	_ "github.com/lklrun/lklrun/internal/base/seccomptrap" // an app's seccomp filter traps calls
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/link/user/gateway"
)

func main() {
	end := execute(os.Args[1:])
	end.Exit()
}

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
