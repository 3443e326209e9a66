// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseHostNet(t *testing.T) {
	for spec, want := range map[string]string{
		"127.0.0.1":        "127.0.0.1/32 0",
		"127.0.0.1:5432":   "127.0.0.1/32 5432",
		"10.0.0.0/8":       "10.0.0.0/8 0",
		"10.0.0.0/8:443":   "10.0.0.0/8 443",
		"0.0.0.0/0":        "0.0.0.0/0 0",
		"::1":              "::1/128 0",
		"[::1]":            "::1/128 0",
		"[::1]:5432":       "::1/128 5432",
		"fd00::/8":         "fd00::/8 0",
		"[fd00::/8]:443":   "fd00::/8 443",
		"::ffff:127.0.0.1": "127.0.0.1/32 0",
	} {
		h, err := ParseHostNet(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		text, err := json.Marshal(struct{ P, Q any }{h.Prefix, h.Port})
		if got := strings.NewReplacer(`{"P":"`, "", `","Q":`, " ", "}", "").Replace(string(text)); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", spec, got, err, want)
		}
		var again HostNet
		if err := again.UnmarshalText([]byte(h.String())); err != nil || again != h {
			t.Errorf("%s: written as %s, which reads as %v (%v)", spec, h, again, err)
		}
	}
}

// Each line is the user's error message after `lklrun: --host-net `.
func TestParseHostNetErrors(t *testing.T) {
	const form = "; expected CIDR[:PORT], such as 10.0.0.0/8, 127.0.0.1:5432 or [::1]:5432"
	for spec, want := range map[string]string{
		"":                      `""` + form,
		"localhost:5432":        `"localhost:5432"` + form,
		"127.0.0.1:":            `"127.0.0.1:": no port after the colon` + form,
		"127.0.0.1:0":           `"127.0.0.1:0": "0" is not a port; expected a number from 1 to 65535`,
		"127.0.0.1:http":        `"127.0.0.1:http": "http" is not a port; expected a number from 1 to 65535`,
		"127.0.0.1:65536":       `"127.0.0.1:65536": "65536" is not a port; expected a number from 1 to 65535`,
		"10.0.0.0/33":           `"10.0.0.0/33"` + form,
		"10.1.2.3/8":            `"10.1.2.3/8": 10.1.2.3/8 has host bits set; expected 10.0.0.0/8, or 10.1.2.3 for this address only`,
		"[::1":                  `"[::1"` + form,
		"[::1]5432":             `"[::1]5432"` + form,
		"[::1]:":                `"[::1]:"` + form,
		"fe80::1%eth0":          `"fe80::1%eth0"` + form,
		"::ffff:127.0.0.1/120":  `"::ffff:127.0.0.1/120"` + form,
		"10.0.0.0/8,10.1.0.0/8": `"10.0.0.0/8,10.1.0.0/8"` + form,
	} {
		if h, err := ParseHostNet(spec); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v\nwant %s", spec, h, err, want)
		}
	}
}

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
