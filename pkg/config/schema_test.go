// SPDX-License-Identifier: Apache-2.0

package config

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
		t.Errorf("%s is not current; go test ./pkg/config -update writes it\n%s", path, diff)
	}
}

func TestSchemaIsCurrent(t *testing.T) {
	golden(t, "../../docs/reference/config.schema.json", Schema())
}

// The schema is valid JSON Schema and matches the reader.
func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("config.schema.json")
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
	for _, good := range []string{full, `{"profiles": ` + string(builtin) + `}`, `{}`, `{"mem": 67108864}`, `{"interfaces": {"type": "user", "dhcp": false}}`} {
		if _, err := ParseFile("f", []byte(good)); err != nil {
			t.Error(err)
		}
		if err := validate(good); err != nil {
			t.Errorf("%v\n%s", err, good)
		}
	}
	for _, bad := range []string{
		`[]`, `{"stak": "x"}`, `{"stack": 1}`, `{"stack": ""}`, `{"engine": "x"}`, `{"spin": -1}`, `{"spin": "1"}`, `{"detach": "on"}`, `{"dns": []}`, `{"listen": 0}`,
		`{"listen": ["80"]}`, `{"sysctl": {}}`, `{"stack": "x", "sysctl": "a=1"}`, `{"sysctl": {"a": true}}`, `{"mem": 1}`, `{"mem": "x"}`, `{"interfaces": [{"device": "x"}]}`,
		`{"interfaces": [{"type": "veth"}]}`, `{"interfaces": [{"type": "tap"}]}`, `{"interfaces": [{"type": "tap", "device": "x", "fd": 3}]}`,
		`{"interfaces": [{"type": "tap", "device": "x", "mtu": "1500"}]}`, `{"interfaces": [{"type": "tap", "device": "x", "mtu": 1}]}`,
		`{"interfaces": [{"type": "user", "vlan": 5}]}`, `{"interfaces": [{"type": "user", "dhcp": true}]}`, `{"interfaces": [{"type": "tap", "device": "x", "adr": 1}]}`,
		`{"interfaces": [{"type": "tap", "device": "x", "neigh": {"ip": "10.0.0.1"}}]}`,
		`{"profiles": {"none": {}}}`, `{"profiles": {"a": {"profile": "b"}}}`, `{"profiles": {"a b": {}}}`, `{"delay": 60000001}`,
	} {
		if _, err := ParseFile("f", []byte(bad)); err == nil {
			t.Errorf("the reader takes %s", bad)
		}
		if err := validate(bad); err == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
}
