// SPDX-License-Identifier: Apache-2.0

// Package mptcp contains the end-to-end tests of paths: MPTCP endpoints and subflows, handovers,
// impaired paths.
package mptcp

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
