// SPDX-License-Identifier: Apache-2.0

// Package capture contains the end-to-end tests of captures.
package capture

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
