// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"testing"

	. "github.com/lklrun/lklrun/internal/link"
	_ "github.com/lklrun/lklrun/internal/link/all"
	"github.com/lklrun/lklrun/pkg/config"
)

func TestStableMAC(t *testing.T) {
	seen := map[config.MAC]string{}
	for _, machine := range []string{"one", "two"} {
		for _, spec := range []string{"tap:a,ip=10.0.0.1/24", "tap:a,ip=10.0.0.2/24", "tap:b,ip=10.0.0.1/24", "fd:3,ip=10.0.0.1/24", "tap:a"} {
			i, err := config.ParseInterface(spec)
			if err != nil {
				t.Fatal(err)
			}
			mac := StableMAC(machine, &i)
			if mac != StableMAC(machine, &i) || mac[0]&3 != 2 {
				t.Errorf("%s on %s: %s", i.String(), machine, mac)
			}
			if other, taken := seen[mac]; taken {
				t.Errorf("%s on %s has the address of %s", i.String(), machine, other)
			}
			seen[mac] = i.String() + " on " + machine
		}
	}
}
