// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/base/schematest"
)

const policy = `{
  "$schema": "policy.schema.json",
  // a comment
  "allow": [
    "PyPI.org.:443",
    {"to": ["a.example", "*.b.example"], "ports": [80, "8000-8100"], "protocol": "tcp"},
    {"to": "10.0.0.0/8", "ports": 53, "protocol": "udp"},
    {"to": "fd00::/8"}, /* all ports */
    {"to": "search.example", "protocol": "dns"},
    {"to": "c.example", "ports": [1, 2], "connections": 9, "sent": "10M"},
  ],
}`

func TestParsePolicy(t *testing.T) {
	for text, want := range map[string]string{
		policy: "pypi.org:443 a.example:80/tcp a.example:8000-8100/tcp *.b.example:80/tcp *.b.example:8000-8100/tcp " +
			"10.0.0.0/8:53/udp fd00::/8 search.example/dns " +
			"c.example:1,connections=9,sent=10M c.example:2,connections=9,sent=10M",
		`{"allow": []}`:              "",
		`{"allow": "a.example/udp"}`: "a.example/udp",
	} {
		rules, err := ParsePolicy("p", []byte(text))
		var got []string
		for _, r := range rules {
			got = append(got, r.String())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s:\n%v, %v; want %s", text, got, err, want)
		}
	}
}

// Each error names the line and the form that is expected.
func TestParsePolicyErrors(t *testing.T) {
	many := `{"allow": [{"to": "10.0.0.0/8", "ports": [` + strings.TrimSuffix(strings.Repeat("1,", MaxPolicy+1), ",") + `]}]}`
	for text, want := range map[string]string{
		``:                                     `p:1:1: `,
		"\n[]":                                 `p:2: an array; expected an object with the rules`,
		`{}`:                                   `p:1: the key "allow" is missing; to permit nothing, write {"allow": []}`,
		"{\n\"alow\": []}":                     `p:2: alow: unknown key; did you mean allow?`,
		`{"allow": [], "allow": ["10.0.0.1"]}`: `p:1: allow: given twice, first at p:1`,
		"{\"allow\": [\n\n1]}":                 `p:3: allow[0]: 1; expected a destination such as`,
		"{\"allow\": [\n\"a b\"]}":             `p:2: allow[0]: "a b": "a b" is neither a host name nor an address`,
		"{\"allow\": [\n{}]}":                  `p:2: allow[0]: the key "to" is missing`,
		"{\"allow\": [\n{\"to\": []}]}":        `p:2: allow[0].to: an empty list`,
		"{\"allow\": [{\"to\": \"a.example\",\n\"ports\": 0}]}":       `p:2: allow[0].ports: "0" is not a port`,
		"{\"allow\": [{\"to\": \"a.example\",\n\"ports\": \"9-8\"}]}": `p:2: allow[0].ports: "9-8" is not a range of ports`,
		"{\"allow\": [{\"to\": \"a.example\",\n\"port\": 80}]}":       `p:2: allow[0].port: unknown key; did you mean ports?`,
		`{"allow": [{"to": "a.example", "protocol": "icmp"}]}`:        `p:1: allow[0].protocol: "icmp"; expected "tcp", "udp" or "dns"`,
		`{"allow": [{"to": "a.example:1", "ports": 2}]}`:              `p:1: allow[0]: a.example:1 has a port already`,
		`{"allow": [{"to": "a.example/udp", "protocol": "tcp"}]}`:     `p:1: allow[0]: a.example/udp has a protocol already`,
		`{"allow": [{"to": "10.0.0.1", "protocol": "dns"}]}`:          `p:1: allow[0]: 10.0.0.1: dns applies to a name without ports`,
		`{"allow": [{"to": "a.example", "connections": 0}]}`:          `p:1: allow[0].connections: "0"; expected a number from 1`,
		`{"allow": [{"to": "a.example", "sent": "10X"}]}`:             `p:1: allow[0].sent: "10X"; expected a size`,
		`{"allow": [{"to": "a.example,sent=1", "connections": 1}]}`:   `p:1: allow[0]: a.example,sent=1 has limits already`,
		many: `p:1: allow[0]: more than 1024 rules`,
	} {
		rules, err := ParsePolicy("p", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80s:\n%v, %v\nwant %s", text, rules, err, want)
		}
	}
}

func TestAllowPermits(t *testing.T) {
	for _, tc := range []struct {
		rule, protocol string
		port           uint16
		want           bool
	}{
		{"a.example", "tcp", 80, true}, {"a.example", "udp", 53, false}, {"a.example", "tcp", 853, false},
		{"a.example/tcp", "tcp", 80, true}, {"a.example/tcp", "udp", 80, false}, {"a.example/tcp", "tcp", 53, false},
		{"a.example:53/udp", "udp", 53, true}, {"a.example:53/udp", "tcp", 53, false},
		{"a.example:50-60", "tcp", 49, false}, {"a.example:50-60", "tcp", 50, true}, {"a.example:50-60", "udp", 60, true}, {"a.example:50-60", "udp", 61, false},
		{"a.example:80", "tcp", 81, false}, {"a.example/dns", "tcp", 80, false}, {"a.example/dns", "udp", 80, false},
		{"[fd00::/8]:80-81/tcp", "tcp", 81, true}, {"10.0.0.1/udp", "tcp", 1, false},
	} {
		a, err := ParseAllow(tc.rule)
		if err != nil || a.Permits(tc.protocol, tc.port) != tc.want || a.String() != tc.rule {
			t.Errorf("%s, %s %d: %v (%s, %v)", tc.rule, tc.protocol, tc.port, !tc.want, a, err)
		}
	}
}

// TestLoadPolicy checks how the flags of a policy combine.
func TestLoadPolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(file, []byte(`{"allow": "a.example:1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		environ []string
		want    string // the rules, or a part of the error
	}{
		{[]string{"EGRESS=" + file}, "[a.example:1]"},
		{[]string{"EGRESS=" + file, "ALLOW=b.example:2"}, "[b.example:2 a.example:1]"},
		{[]string{"EGRESS=/nowhere"}, "LKLRUN_EGRESS: /nowhere: no such file"},
		{[]string{"EGRESS=/etc"}, "LKLRUN_EGRESS: /etc: is a directory"},
		{[]string{"EGRESS=audit:"}, `names no file`},
		{[]string{"EGRESS=audit:x"}, `[]`},
		{[]string{"EGRESS=audit:x", "ALLOW=b.example:2"}, `LKLRUN_EGRESS: audit:x permits everything, so --allow b.example:2 has no effect`},
		{[]string{"EGRESS_LOG=x"}, `there are no decisions to log; add --egress or --allow`},
		{[]string{"EGRESS_LOG=x", "ALLOW=b.example"}, `[b.example]`},
	} {
		for n := range tc.environ {
			tc.environ[n] = "LKLRUN_" + tc.environ[n]
		}
		c, err := Load(Sources{Environ: tc.environ, NoFile: true})
		got := ""
		if err != nil {
			got = err.Error()
		} else if got = fmt.Sprint(c.Run.Allows); c.Run.Confined() == "" {
			t.Errorf("%v: the run is not confined", tc.environ)
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%v: %s; want %s", tc.environ, got, tc.want)
		}
	}
}

// The schema is valid JSON Schema and matches the reader.
func TestPolicySchema(t *testing.T) {
	read := func(text []byte) error {
		_, err := ParsePolicy("f", text)
		return err
	}
	schematest.Matches(t, PolicySchema(), read, []string{policy, `{"allow": []}`, `{"allow": "a.example"}`}, []string{
		`[]`, `{}`, `{"alow": []}`, `{"allow": 1}`, `{"allow": [1]}`, `{"allow": [""]}`, `{"allow": [{}]}`, `{"allow": [{"to": []}]}`, `{"allow": [{"to": "a", "ports": 0}]}`,
		`{"allow": [{"to": "a", "ports": 70000}]}`, `{"allow": [{"to": "a", "ports": "x"}]}`, `{"allow": [{"to": "a", "ports": []}]}`, `{"allow": [{"to": "a", "protocol": "icmp"}]}`, `{"allow": [{"to": "a", "port": 1}]}`,
	})
}
