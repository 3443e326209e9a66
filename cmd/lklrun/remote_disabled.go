// SPDX-License-Identifier: Apache-2.0

//go:build device

package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/cli"
)

// far contains no devices in this build, because it runs on a device itself.
type far struct{}

func (*far) add(*pflag.FlagSet, string) {}

func (*far) addStay(*pflag.FlagSet) {}

func (*far) run(context.Context, *runner, []string) (bool, error) { return false, nil }

func (*far) cleanup(context.Context) (bool, error) { return false, nil }

func (*far) doctor(context.Context, []string, cli.Output) (bool, error) { return false, nil }

const deviceHelp = ""
