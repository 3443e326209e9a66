// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"

	"github.com/lklrun/lklrun/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, nil) }
