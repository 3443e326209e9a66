// SPDX-License-Identifier: Apache-2.0

// Package jsondoc documents the JSON output of commands, from Go types and the comments
// of their fields.
package jsondoc

import (
	"encoding"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strings"
	"time"
)

// Document is the output of one command.
type Document struct {
	Name string // name of the command
	What string // description of the output
	Type reflect.Type
}

// Generate returns the page, in Markdown. root is the directory of the module,
// whose comments Generate reads. module is the module's path.
func Generate(root, module string, documents []Document) ([]byte, error) {
	g := &generator{comments: newComments(root, module), seen: map[reflect.Type]bool{}, titles: map[string]reflect.Type{}}
	g.text.WriteString("# JSON\n\nThis page describes what each command prints with `-o json`. With `--watch`,\neach line is a document. " +
		"Fields that the stack does not report are absent.\n\n")
	for _, d := range documents {
		fmt.Fprintf(&g.text, "- [%s](#%s)\n", d.Name, anchor(d.Name))
	}
	for _, d := range documents {
		fmt.Fprintf(&g.text, "\n## %s\n\n%s: %s.\n", d.Name, d.What, g.name(d.Type))
		g.sections(d.Type)
	}
	return []byte(g.text.String()), g.err
}

type generator struct {
	text     strings.Builder
	comments *comments
	seen     map[reflect.Type]bool
	titles   map[string]reflect.Type
	err      error
}

// sections writes a table for each type that does not have one yet.
func (g *generator) sections(t reflect.Type) {
	t = element(t)
	if !isObject(t) || g.seen[t] {
		return
	}
	g.seen[t] = true
	fmt.Fprintf(&g.text, "\n### %s\n\n| field | type | what |\n|---|---|---|\n", g.title(t))
	fields := g.fields(t)
	for _, f := range fields {
		fmt.Fprintf(&g.text, "| `%s` | %s | %s |\n", f.name, g.name(f.typ), strings.ReplaceAll(f.what, "|", "\\|"))
	}
	for _, f := range fields {
		g.sections(f.typ)
	}
}

// field is a field of an object, by its JSON name.
type field struct {
	name, what string
	typ        reflect.Type
}

// fields returns the fields of a type, including the fields of embedded types. As in
// encoding/json, outer fields hide inner ones.
func (g *generator) fields(t reflect.Type) []field {
	var own, embedded []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && isObject(element(f.Type)) {
			embedded = append(embedded, g.fields(element(f.Type))...)
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		what, err := g.comments.of(t, f.Name)
		if err != nil && g.err == nil {
			g.err = err
		}
		if strings.Contains(options, "omit") && !strings.Contains(what, "absent") {
			what = strings.TrimSpace(what + " (absent when there is none)")
		}
		own = append(own, field{name, what, f.Type})
	}
	for _, e := range embedded {
		hidden := false
		for _, o := range own {
			hidden = hidden || o.name == e.name
		}
		if !hidden {
			own = append(own, e)
		}
	}
	return own
}

// element returns the element type of a pointer, a list or a map.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || !marshals(t) && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	return t
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func marshals(t reflect.Type) bool { return t.Implements(jsonMarshaler) || t.Implements(textMarshaler) }

func isObject(t reflect.Type) bool { return t.Kind() == reflect.Struct && !marshals(t) }

// title returns the heading of a type: its name, with the package if another type
// has the same name.
func (g *generator) title(t reflect.Type) string {
	if first, ok := g.titles[t.Name()]; ok && first != t {
		return path.Base(t.PkgPath()) + "." + t.Name()
	}
	g.titles[t.Name()] = t
	return t.Name()
}

// anchor returns the target of a link to a heading, in GitHub's form.
func anchor(heading string) string {
	return strings.NewReplacer(".", "", " ", "-").Replace(strings.ToLower(heading))
}

// name returns the name of the JSON type of a value.
func (g *generator) name(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time (RFC 3339)"
	case t == reflect.TypeFor[time.Duration]():
		return "nanoseconds"
	case t == reflect.TypeFor[json.Number]():
		return "number"
	case t.Implements(textMarshaler):
		return "string"
	case t.Implements(jsonMarshaler):
		return "number" // for sockdiag.Value and similar types
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.name(t.Elem())
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "string (base64)"
		}
		return "list of " + g.name(t.Elem())
	case reflect.Map:
		return "object: name to " + g.name(t.Elem())
	case reflect.Struct:
		title := g.title(t)
		return fmt.Sprintf("[%s](#%s)", title, anchor(title))
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	}
	return "number"
}
