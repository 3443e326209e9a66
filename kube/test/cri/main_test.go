// SPDX-License-Identifier: Apache-2.0

// Package cri contains the tests of pods on a stack. They call containerd as kubelet does.
package cri

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.EndToEnd(m) }
