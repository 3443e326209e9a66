// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// This test generates the tables of docs/reference/lab.md from the Go types.
func TestReferenceIsCurrent(t *testing.T) {
	const path = "../../docs/reference/lab.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	between := regexp.MustCompile(`(?s)(<!-- keys -->\n).*?(<!-- end -->)`)
	parts := between.FindSubmatchIndex(text)
	if parts == nil {
		t.Fatalf("%s has no place for the keys", path)
	}
	var b strings.Builder
	for _, s := range []struct {
		of  string
		typ reflect.Type
	}{
		{"the file", reflect.TypeFor[Topology]()},
		{"a wire", reflect.TypeFor[Wire]()},
		{"a node", reflect.TypeFor[Node]()},
		{"an end of a wire, in `wires` of a node", reflect.TypeFor[End]()},
		{"a step", reflect.TypeFor[Step]()},
	} {
		fmt.Fprintf(&b, "Keys of %s:\n\n| key | value | meaning |\n|---|---|---|\n", s.of)
		for n := range s.typ.NumField() {
			f := s.typ.Field(n)
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, valueOf(f.Type), f.Tag.Get("doc"))
		}
		b.WriteString("\n")
	}
	golden(t, path, []byte(string(text[:parts[3]])+strings.TrimSuffix(b.String(), "\n")+string(text[parts[4]:])))
}

// valueOf describes the form of a value.
func valueOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Command](), t == reflect.TypeFor[List]():
		return "string or array of strings"
	case t == reflect.TypeFor[[]End]():
		return "array of names or ends"
	}
	switch t.Kind() {
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return "object of names and values"
		}
		return "object of " + strings.ToLower(t.Elem().Name()) + "s"
	case reflect.Slice:
		return "array of " + strings.ToLower(t.Elem().Name()) + "s"
	case reflect.Int:
		return "number"
	case reflect.Bool:
		return "true or false"
	}
	return "string"
}
