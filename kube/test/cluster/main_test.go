// SPDX-License-Identifier: Apache-2.0

// Package cluster contains the tests of pods on a stack in a cluster of one node. `make
// test-cluster` runs them.
package cluster

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
