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
