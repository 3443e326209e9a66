// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
)

// deskVerbs are those that nobody needs on a device, and that bring much along:
// pictures, manual pages.
func deskVerbs(root *cobra.Command) []*cobra.Command {
	return []*cobra.Command{abCommand(), cli.ManCommand(root, topics...)}
}
