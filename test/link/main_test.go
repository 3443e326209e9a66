// SPDX-License-Identifier: Apache-2.0

// Package link contains the end-to-end tests of interfaces: each type, addresses by DHCP,
// the gateway, shared addresses, and the interfaces' changes to the host and the cleanup.
package link

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m, kit.GoProgram("http3", "./test/programs/http3")) }
