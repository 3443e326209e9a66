// SPDX-License-Identifier: Apache-2.0

// Package targets contains the tests of what make targets produce: bundles, packages, the demo,
// benchmarks, and other builds.
package targets

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m, kit.GoProgram("bench", "./bench")) }
