// SPDX-License-Identifier: Apache-2.0

// Package remote contains the end-to-end tests of other machines: phones by adb, machines by ssh.
package remote

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

func TestMain(m *testing.M) { kit.EndToEnd(m, fakedevice.Programs("amd64", "arm64", "386")) }
