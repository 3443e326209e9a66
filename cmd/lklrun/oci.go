// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/run/oci"
)

// ociCommand is an OCI runtime. Its command line is that of crun and runc.
func ociCommand(end *exit.End) *cobra.Command {
	return &cobra.Command{
		Use:                ociVerb,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == oci.HoldVerb {
				oci.Hold()
				return nil
			}
			status, err := oci.Run(cmd.Context(), args)
			if err == nil {
				*end = exit.End{Status: status}
			}
			return err
		},
	}
}
