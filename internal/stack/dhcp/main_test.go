// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"flag"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) {
	// The tests wait for the servers' timers, not for CPU time.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	kit.Main(m, nil)
}
