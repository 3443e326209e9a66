// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"testing"
)

func TestCompleteInterface(t *testing.T) {
	devices := []string{"eth0", "wlan0"}
	for word, want := range map[string][]string{
		"":                   {"user", "tap:"},
		"ma":                 {"macvtap:"},
		"raw:":               {"raw:eth0", "raw:wlan0"},
		"raw:w":              {"raw:wlan0"},
		"tap:t0,":            {"tap:t0,ip=", "tap:t0,dhcp", "tap:t0,bridge="},
		"tap:t0,ip=1.2.3.4,": {"tap:t0,ip=1.2.3.4,ip=", "tap:t0,ip=1.2.3.4,gw="},
		"user,":              {"user,mtu="},
		"wg:complete_t":      {"wg:complete_test.go"},
	} {
		got := CompleteInterface(word, devices)
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%q: no %q in %q", word, w, got)
			}
		}
	}
	for word, not := range map[string]string{
		"tap:t0,mtu=9000,": "tap:t0,mtu=9000,mtu=", // mtu can be given only once
		"user,":            "user,nat",
		"raw:w":            "raw:eth0",
		"veth:a,":          "veth:a,ip=",
	} {
		if slices.Contains(CompleteInterface(word, devices), not) {
			t.Errorf("%q goes on as %q", word, not)
		}
	}
}
