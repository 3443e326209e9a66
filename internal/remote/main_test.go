// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"testing"

	"github.com/lklrun/lklrun/internal/testutil"
	"github.com/lklrun/lklrun/internal/testutil/fakedevice"
)

func TestMain(m *testing.M) {
	testutil.Main(m, func(root string) error { return fakedevice.Build(root, "amd64") })
}
