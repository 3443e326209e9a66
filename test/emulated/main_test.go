// SPDX-License-Identifier: Apache-2.0

// Package emulated contains the end-to-end tests with programs of another architecture, which
// qemu-user runs. Package vm tests a whole emulated machine.
package emulated

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
