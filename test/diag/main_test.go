// SPDX-License-Identifier: Apache-2.0

// Package diag contains the end-to-end tests of lklctl's diagnostics: counters, sockets,
// accounts, top, web, and reports after a panic.
package diag

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
