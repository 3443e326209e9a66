// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"flag"
	"testing"

	"github.com/lklrun/lklrun/internal/base/schematest"
)

var update = flag.Bool("update", false, "write the generated files")

// golden compares generated data with a committed file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	schematest.Golden(t, *update, "./pkg/lab", path, got)
}

// The schema is valid JSON Schema and matches the reader.
func TestSchema(t *testing.T) {
	read := func(text []byte) error {
		_, err := Parse("f", text)
		return err
	}
	schematest.Matches(t, Schema(), read, []string{full, pair, diamond}, []string{
		`[]`, `{}`, `{"nods": {}}`, `{"nodes": []}`, `{"nodes": {"a": {"wires": []}}}`, `{"nodes": {"a": {"wires": [1]}}}`,
		`{"nodes": {"a": {"wires": [{"ip": "10.0.1.1"}]}}}`, `{"nodes": {"a": {"router": 1}}}`, `{"seed": -1}`, `{"seed": "1"}`,
		`{"nodes": {"a": {"wires": ["x"], "run": {}}}}`, `{"steps": [{"timeout": 3}]}`, `{"steps": [{"retry": "yes"}]}`,
		`{"wires": {"a": {"mtu": "1500"}}}`, `{"sysctl": {"a": true}}`, `{"name": ""}`,
	})
}
