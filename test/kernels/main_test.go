// SPDX-License-Identifier: Apache-2.0

// Package kernels contains the tests of stacks of other Linux versions. They run the same
// programs on each version, by both engines. .ci/lib adds the tests of the library and of
// the socket calls.
package kernels

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
