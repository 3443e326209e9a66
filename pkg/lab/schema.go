// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

type object = map[string]any

// Schema returns the JSON Schema of a topology file. It is derived from the Go
// types.
func Schema() []byte {
	schema := typeSchema(reflect.TypeFor[Topology]())
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "lklrun lab"
	schema["description"] = "A topology for lklrun lab: JSON, with comments and trailing commas."
	schema["required"] = []string{"nodes"}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		panic(err) // cannot happen: the schema contains only maps and strings
	}
	return b.Bytes()
}

func typeSchema(t reflect.Type) object {
	text := object{"type": "string", "minLength": 1}
	array := func(of object) object { return object{"type": "array", "items": of, "minItems": 1} }
	switch t {
	case reflect.TypeFor[Command](), reflect.TypeFor[List]():
		return object{"anyOf": []object{text, array(text)}}
	case reflect.TypeFor[End]():
		return object{"anyOf": []object{text, structSchema(t, "wire")}}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structSchema(t)
	case reflect.Map:
		of := typeSchema(t.Elem())
		if t.Elem().Kind() == reflect.String { // sysctls
			of = object{"anyOf": []object{text, {"type": "integer"}}}
		}
		return object{"type": "object", "additionalProperties": of}
	case reflect.Slice:
		return array(typeSchema(t.Elem()))
	case reflect.Int:
		return object{"anyOf": []object{{"type": "integer", "minimum": 0}, {"type": "string", "pattern": varUse.String()}}}
	case reflect.Bool:
		return object{"type": "boolean"}
	}
	return text
}

func structSchema(t reflect.Type, required ...string) object {
	properties := object{}
	for n := range t.NumField() {
		f := t.Field(n)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := typeSchema(f.Type)
		p["description"] = f.Tag.Get("doc")
		properties[key] = p
	}
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}
