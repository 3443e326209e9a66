// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/pkg/config"
)

// CompleteInterface completes an interface's specification with types, the host's devices
// and keys; none of these completes the word, so the shell adds no blank.
func CompleteInterface(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	var devices []string
	all, _ := net.Interfaces() // devices that are not visible are not offered
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			devices = append(devices, i.Name)
		}
	}
	return config.CompleteInterface(word, devices), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
