// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

func TestMain(m *testing.M) {
	kit.Main(m, func(root string) error { return fakedevice.Build(root, "amd64") })
}
