// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/run/oci"
)

// nriCommand is the plug-in for containerd.
func nriCommand() *cobra.Command {
	return &cobra.Command{
		Use:    nriVerb,
		Short:  "give stacks to the pods of containerd, as a plug-in of NRI",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return oci.Plugin(cmd.Context()) },
	}
}
