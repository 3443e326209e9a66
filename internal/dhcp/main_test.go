// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"flag"
	"testing"

	"github.com/lklrun/lklrun/internal/testutil"
	"github.com/lklrun/lklrun/internal/testutil/hoststack"
)

func TestMain(m *testing.M) {
	hoststack.Main()
	// They wait for servers' times, not for a processor.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	testutil.Main(m, nil)
}
