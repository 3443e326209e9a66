// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tailscale/hujson"
)

var update = flag.Bool("update", false, "write the generated files")

// golden compares generated data with a committed file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not current; go test ./pkg/lab -update writes it\n%s", path, diff)
	}
}

func TestSchemaIsCurrent(t *testing.T) {
	golden(t, "../../docs/reference/lab.schema.json", Schema())
}

// The schema is valid JSON Schema and matches the reader.
func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("lab.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("lab.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) error {
		t.Helper()
		standard, err := hujson.Standardize([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(standard))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	for _, good := range []string{full, pair, diamond} {
		if _, err := Parse("f", []byte(good)); err != nil {
			t.Error(err)
		}
		if err := validate(good); err != nil {
			t.Errorf("%v\n%s", err, good)
		}
	}
	for _, bad := range []string{
		`[]`, `{}`, `{"nods": {}}`, `{"nodes": []}`, `{"nodes": {"a": {"wires": []}}}`, `{"nodes": {"a": {"wires": [1]}}}`,
		`{"nodes": {"a": {"wires": [{"ip": "10.0.1.1"}]}}}`, `{"nodes": {"a": {"router": 1}}}`, `{"seed": -1}`, `{"seed": "1"}`,
		`{"nodes": {"a": {"wires": ["x"], "run": {}}}}`, `{"steps": [{"timeout": 3}]}`, `{"steps": [{"retry": "yes"}]}`,
		`{"wires": {"a": {"mtu": "1500"}}}`, `{"sysctl": {"a": true}}`, `{"name": ""}`,
	} {
		if _, err := Parse("f", []byte(bad)); err == nil {
			t.Errorf("the reader takes %s", bad)
		}
		if err := validate(bad); err == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
}
