// SPDX-License-Identifier: Apache-2.0

//go:build device

package main

import (
	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// deskVerbs returns none in the lklrun of a bundle, which is uploaded to a
// device.
func deskVerbs(*cobra.Command, *exit.End) []*cobra.Command { return nil }
