// SPDX-License-Identifier: Apache-2.0

// Package run contains the end-to-end tests of a run: its start, configuration and
// options, the command and its users, signals, exit status, and leftovers.
package run

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m, kit.GoProgram("appfilter", "./test/kit/appfilter")) }
