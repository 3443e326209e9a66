// SPDX-License-Identifier: Apache-2.0

//go:build device

package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/cli"
)

// deviceFlags contains no devices in this build, because it runs on a device itself.
type deviceFlags struct{}

func (*deviceFlags) add(*pflag.FlagSet, string) {}

func (*deviceFlags) addStay(*pflag.FlagSet) {}

func (*deviceFlags) run(context.Context, *runner, []string) (bool, error) { return false, nil }

func (*deviceFlags) cleanup(context.Context) (bool, error) { return false, nil }

func (*deviceFlags) doctor(context.Context, []string, cli.Output) (bool, error) { return false, nil }

const deviceHelp = ""
