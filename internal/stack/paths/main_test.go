// SPDX-License-Identifier: Apache-2.0

package paths_test

import (
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }
