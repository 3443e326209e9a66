// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
)

// deskVerbs returns the verbs that are not useful on a device and need large
// dependencies, such as manual pages.
func deskVerbs(root *cobra.Command) []*cobra.Command {
	return []*cobra.Command{abCommand(), cli.ManCommand(root, topics...)}
}
