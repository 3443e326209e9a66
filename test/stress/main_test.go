// SPDX-License-Identifier: Apache-2.0

// Package stress contains the end-to-end tests with random calls, random data and much traffic.
package stress

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
