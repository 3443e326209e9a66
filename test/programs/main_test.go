// SPDX-License-Identifier: Apache-2.0

// Package programs contains the end-to-end tests of well-known programs, as servers and clients, and of
// network tools, on the stack.
package programs

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m, kit.GoProgram("http3", "./test/programs/http3")) }
