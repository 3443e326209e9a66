// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"testing"

	"github.com/lklrun/lklrun/internal/base/schematest"
)

var update = flag.Bool("update", false, "write the generated files")

// golden compares generated data with a committed file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	schematest.Golden(t, *update, "./pkg/config", path, got)
}

// The schema is valid JSON Schema and matches the reader.
func TestSchema(t *testing.T) {
	read := func(text []byte) error {
		_, err := ParseFile("f", text)
		return err
	}
	schematest.Matches(t, Schema(), read, []string{full, `{"profiles": ` + string(builtin) + `}`, `{}`, `{"mem": 67108864}`, `{"interfaces": {"type": "user", "dhcp": false}}`}, []string{
		`[]`, `{"stak": "x"}`, `{"stack": 1}`, `{"stack": ""}`, `{"engine": "x"}`, `{"spin": -1}`, `{"spin": "1"}`, `{"detach": "on"}`, `{"dns": []}`, `{"listen": 0}`,
		`{"listen": ["80"]}`, `{"sysctl": {}}`, `{"stack": "x", "sysctl": "a=1"}`, `{"sysctl": {"a": true}}`, `{"mem": 1}`, `{"mem": "x"}`, `{"interfaces": [{"device": "x"}]}`,
		`{"interfaces": [{"type": "veth"}]}`, `{"interfaces": [{"type": "tap"}]}`, `{"interfaces": [{"type": "tap", "device": "x", "fd": 3}]}`,
		`{"interfaces": [{"type": "tap", "device": "x", "mtu": "1500"}]}`, `{"interfaces": [{"type": "tap", "device": "x", "mtu": 1}]}`,
		`{"interfaces": [{"type": "user", "vlan": 5}]}`, `{"interfaces": [{"type": "user", "dhcp": true}]}`, `{"interfaces": [{"type": "tap", "device": "x", "adr": 1}]}`,
		`{"interfaces": [{"type": "tap", "device": "x", "neigh": {"ip": "10.0.0.1"}}]}`,
		`{"profiles": {"none": {}}}`, `{"profiles": {"a": {"profile": "b"}}}`, `{"profiles": {"a b": {}}}`, `{"delay": 60000001}`,
	})
}
