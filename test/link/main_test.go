// SPDX-License-Identifier: Apache-2.0

// Package link contains the end-to-end tests of interfaces: each type, addresses by DHCP, the
// gateway, shared addresses, and their changes to the host with the undo.
package link

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
