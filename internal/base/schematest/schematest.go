// SPDX-License-Identifier: Apache-2.0

// Package schematest tests a JSON Schema that is derived from Go types: whether the
// committed file is current, and whether the schema matches the reader of the files.
package schematest

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tailscale/hujson"
)

// Golden compares generated data with a committed file. With update, it writes the file
// first. The package is the argument of the go command that updates the file.
func Golden(t *testing.T, update bool, pkg, path string, got []byte) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not current; go test %s -update writes it\n%s", path, pkg, diff)
	}
}

// Matches checks that a schema is valid, and that both the schema and the reader accept
// the good texts and reject the bad ones.
func Matches(t *testing.T, schema []byte, read func(text []byte) error, good, bad []string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	const name = "test.schema.json"
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range good {
		if err := read([]byte(text)); err != nil {
			t.Error(err)
		}
		if err := s.Validate(value(t, text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for _, text := range bad {
		if read([]byte(text)) == nil {
			t.Errorf("the reader accepts %s", text)
		}
		if s.Validate(value(t, text)) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

// value decodes JSON with comments.
func value(t *testing.T, text string) any {
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
	return v
}
