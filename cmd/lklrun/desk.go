// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
)

// deskVerbs returns the verbs that are not useful on a device and need large
// dependencies, such as manual pages and builds of stacks.
//
// A verb that runs a program sets end.
func deskVerbs(root *cobra.Command, end *exit.End) []*cobra.Command {
	return []*cobra.Command{abCommand(), labCommand(end), matrixCommand(), stackCommand(), testCommand(), cli.ManCommand(root, topics...)}
}
