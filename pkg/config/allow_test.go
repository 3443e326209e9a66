// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestParseAllow(t *testing.T) {
	for spec, want := range map[string]string{
		"pypi.org":           "pypi.org",
		"PyPI.org.":          "pypi.org",
		"pypi.org:443":       "pypi.org:443",
		"pypi.org.:443":      "pypi.org:443",
		"*.Example.com":      "*.example.com",
		"*.example.com.:80":  "*.example.com:80",
		"bücher.example":     "xn--bcher-kva.example",
		"*.BÜCHER.example:1": "*.xn--bcher-kva.example:1",
		"a_b.internal":       "a_b.internal",
		"localhost":          "localhost",
		"10.0.0.0/8":         "10.0.0.0/8",
		"10.0.0.1:53":        "10.0.0.1:53",
		"::1":                "::1",
		"[fd00::/8]:443":     "[fd00::/8]:443",
		"::ffff:10.0.0.1":    "10.0.0.1",

		"pypi.org:443/tcp,sent=1024K,connections=10": "pypi.org:443/tcp,connections=10,sent=1M",
		"10.0.0.0/8,sent=1000":                       "10.0.0.0/8,sent=1000",
	} {
		a, err := ParseAllow(spec)
		if err != nil || a.String() != want {
			t.Errorf("%s: %v, %v; want %s", spec, a, err, want)
		}
		var again Allow
		if err := again.UnmarshalText([]byte(a.String())); err != nil || again != a {
			t.Errorf("%s: written as %s, which reads as %v (%v)", spec, a, again, err)
		}
	}
}

// Each line is the user's error message after `lklrun: --allow `.
func TestParseAllowErrors(t *testing.T) {
	const form = "; " + allowForm
	for spec, want := range map[string]string{
		"":                  `"": "" is neither a host name nor an address` + form,
		"*":                 `"*": "*" is neither a host name nor an address` + form,
		"*.":                `"*.": "*." is neither a host name nor an address` + form,
		"a.*.example":       `"a.*.example": "a.*.example" is neither a host name nor an address` + form,
		"*.*.example":       `"*.*.example": "*.*.example" is neither a host name nor an address` + form,
		"127.1":             `"127.1": "127.1" is neither a host name nor an address` + form,
		"0x7f.0.0.1":        `"0x7f.0.0.1": "0x7f.0.0.1" is neither a host name nor an address` + form,
		"a..b":              `"a..b": "a..b" is neither a host name nor an address` + form,
		"pypi.org:":         `"pypi.org:": "" is not a port; expected a number from 1 to 65535`,
		"pypi.org:https":    `"pypi.org:https": "https" is not a port; expected a number from 1 to 65535`,
		"http://pypi.org/":  `"http://pypi.org/" is a URL` + form,
		"10.1.2.3/8":        `"10.1.2.3/8": 10.1.2.3/8 has host bits set; expected 10.0.0.0/8, or 10.1.2.3 for this address only`,
		"fe80::1%eth0":      `"fe80::1%eth0"` + form,
		"pypi.org,":         `"pypi.org,": "" is no limit; expected connections=N or sent=SIZE, each once`,
		"pypi.org,sent=0":   `"pypi.org,sent=0": sent: "0"; expected a size from 1 to 1024G`,
		"a.b,connections":   `"a.b,connections": connections: ""; expected a number from 1`,
		"a.b/dns,sent=1":    `"a.b/dns,sent=1": dns permits no connections, so it cannot limit them`,
		"a.b,sent=1,sent=2": `"a.b,sent=1,sent=2": "sent=2" is no limit; expected connections=N or sent=SIZE, each once`,
		"\u200d.example":    "\"\\u200d.example\": \"\\u200d.example\" is not a valid international name",
	} {
		if a, err := ParseAllow(spec); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v\nwant %s", spec, a, err, want)
		}
	}
}

func TestAllowMatches(t *testing.T) {
	for _, tc := range []struct {
		rule, name string
		want       bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "www.example.com", false},
		{"example.com", "badexample.com", false},
		{"example.com", "example.com.evil.org", false},
		{"*.example.com", "www.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", ".example.com", false},
		{"*.example.com", "badexample.com", false},
		{"10.0.0.0/8", "", false},
	} {
		a, err := ParseAllow(tc.rule)
		if err != nil || a.Matches(tc.name) != tc.want {
			t.Errorf("%s and %s: %v (%v)", tc.rule, tc.name, !tc.want, err)
		}
	}
}
