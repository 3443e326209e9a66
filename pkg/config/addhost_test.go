// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestParseAddHost(t *testing.T) {
	for _, s := range []string{"a=10.0.0.1", "server.lab=fd00::1", "a_b-c.9=192.0.2.1"} {
		if h, err := ParseAddHost(s); err != nil || h.String() != s {
			t.Errorf("%s: %v, %v", s, h, err)
		}
	}
	for s, want := range map[string]string{
		"a":                 `"a"; expected NAME=ADDRESS, such as server=192.0.2.1`,
		"a=b":               `"a=b": "b" is not an IP address; expected NAME=ADDRESS, such as server=192.0.2.1`,
		"a=fe80::1%e":       `"a=fe80::1%e": "fe80::1%e" is not an IP address; expected NAME=ADDRESS, such as server=192.0.2.1`,
		"=10.0.0.1":         `"=10.0.0.1": "" is not a host name; expected NAME=ADDRESS, such as server=192.0.2.1`,
		"a b=10.0.0.1":      `"a b=10.0.0.1": "a b" is not a host name; expected NAME=ADDRESS, such as server=192.0.2.1`,
		"-a=10.0.0.1":       `"-a=10.0.0.1": "-a" is not a host name; expected NAME=ADDRESS, such as server=192.0.2.1`,
		"10.0.0.2=10.0.0.1": `"10.0.0.2=10.0.0.1": "10.0.0.2" is not a host name; expected NAME=ADDRESS, such as server=192.0.2.1`,
	} {
		if h, err := ParseAddHost(s); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v", s, h, err)
		}
	}
}
