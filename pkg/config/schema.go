// SPDX-License-Identifier: Apache-2.0

package config

import "encoding/json"

// schemaID identifies the version of JSON Schema.
const schemaID = "https://json-schema.org/draft/2020-12/schema"

type object = map[string]any

// Schema returns the JSON Schema of a configuration file. It is derived from
// the same tables as the reader.
func Schema() []byte {
	profile := object{"summary": object{"type": "string", "description": "description, shown by lklrun profiles"}}
	file := object{"$schema": object{"type": "string", "description": "address of this schema, for editors"}}
	for n := range settings {
		s := &settings[n]
		file[s.Key] = s.schema()
		if !s.run {
			profile[s.Key] = object{"$ref": "#/properties/" + s.Key}
		}
	}
	profileNames := object{"pattern": "^[A-Za-z0-9_-]{1,64}$", "not": object{"const": NoProfile}}
	file["profiles"] = object{
		"type": "object", "description": "user-defined profiles (sets of settings), by name",
		"propertyNames":        profileNames,
		"additionalProperties": object{"$ref": "#/$defs/profile"},
	}
	schema := object{
		"$schema":              schemaID,
		"title":                "lklrun configuration",
		"description":          "Settings of lklrun: JSON, with comments and trailing commas.",
		"type":                 "object",
		"properties":           file,
		"additionalProperties": false,
		"$defs": object{
			"profile":   object{"type": "object", "properties": profile, "additionalProperties": false},
			"interface": interfaceSchema(),
			"neighbour": object{
				"type": "object", "required": []string{"ip", "mac"}, "additionalProperties": false,
				"properties": object{"ip": object{"type": "string"}, "mac": object{"type": "string"}},
			},
		},
	}
	return encodeSchema(schema)
}

// oneOrMore returns the schema for a value or an array of such values.
func oneOrMore(v object, most int) []object {
	array := object{"type": "array", "items": v, "minItems": 1}
	if most > 0 {
		array["maxItems"] = most
	}
	return []object{v, array}
}

func (s *Setting) schema() object {
	o := object{"description": s.Help}
	text := object{"type": "string", "minLength": 1}
	switch s.Kind {
	case Size:
		o["anyOf"] = []object{{"type": "string", "pattern": "^[0-9]+[kKmMgG]?[iI]?[bB]?$"}, {"type": "integer", "minimum": MinMem, "maximum": int64(MaxMem)}}
	case Number:
		o["type"], o["minimum"], o["maximum"] = "integer", s.Least, s.Most
	case Switch:
		o["type"] = "boolean"
	case Texts:
		o["anyOf"] = oneOrMore(text, s.Most)
	case Numbers:
		o["anyOf"] = oneOrMore(object{"type": "integer", "minimum": 1, "maximum": 65535}, s.Most)
	case Interfaces:
		o["anyOf"] = oneOrMore(object{"anyOf": []object{{"$ref": "#/$defs/interface"}, text}}, s.Most)
	case Sysctls:
		o["anyOf"] = []object{
			{"type": "object", "minProperties": 1, "maxProperties": s.Most, "additionalProperties": object{"anyOf": []object{text, {"type": "integer"}}}},
			{"type": "array", "items": text, "minItems": 1, "maxItems": s.Most},
		}
	default:
		o["type"], o["minLength"] = "string", 1
		if len(s.Choices) > 0 {
			o["enum"] = s.Choices
		}
	}
	if s.Default != "" {
		o["default"] = s.Default
		if s.Kind == Number {
			o["default"] = json.Number(s.Default)
		}
	}
	return o
}

func interfaceSchema() object {
	properties := object{
		"type":   object{"enum": TypeNames(), "description": "the device or descriptor"},
		"device": object{"type": "string", "minLength": 1, "description": "the host's device, of " + typesWith(func(t *Type) bool { return t.Arg == "device" })},
		"fd":     object{"type": "integer", "minimum": 3, "description": "the number of an open descriptor, of " + typesWith(func(t *Type) bool { return t.Arg == "fd" })},
	}
	var rules []object
	for _, t := range interfaceTypes {
		then := object{}
		if t.Arg != "" {
			then["required"] = []string{t.Arg}
		}
		allowed := object{}
		for _, arg := range targetKeys[1:] {
			if arg != t.Arg {
				allowed[arg] = false
			}
		}
		for _, k := range interfaceKeys() {
			if !k.takenBy(t) && !k.flag {
				allowed[k.name] = false
			} else if !k.takenBy(t) {
				allowed[k.name] = object{"const": false}
			}
		}
		then["properties"] = allowed
		rules = append(rules, object{
			"if":   object{"properties": object{"type": object{"const": t.Name}}, "required": []string{"type"}},
			"then": then,
		})
	}
	for _, k := range interfaceKeys() {
		properties[k.name] = k.schema()
	}
	return object{
		"type": "object", "properties": properties, "required": []string{"type"},
		"additionalProperties": false, "allOf": rules,
	}
}

func (k *key) schema() object {
	o := object{"description": k.help}
	switch {
	case k.flag:
		o["type"] = "boolean"
	case k.most > 0:
		o["type"], o["minimum"], o["maximum"] = "integer", k.least, k.most
	case k.name == "neigh":
		o["anyOf"] = oneOrMore(object{"anyOf": []object{{"$ref": "#/$defs/neighbour"}, {"type": "string"}}}, 0)
	case k.list:
		o["anyOf"] = oneOrMore(object{"type": "string", "minLength": 1}, 0)
	default:
		o["type"], o["minLength"] = "string", 1
	}
	return o
}
