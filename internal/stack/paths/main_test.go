// SPDX-License-Identifier: Apache-2.0

package paths_test

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/hoststack"
)

func TestMain(m *testing.M) {
	hoststack.Main()
	kit.Main(m, nil)
}
