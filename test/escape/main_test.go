// SPDX-License-Identifier: Apache-2.0

// Package escape contains the end-to-end tests of the isolation: attempts of a target, or
// of another user, to reach resources that the run must protect.
package escape

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
