// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// maxFile limits the size of a configuration file, far above any realistic
// size.
const maxFile = 1 << 20

// document is a file of JSON with comments. It contains the information that is
// needed to convert offsets to lines.
type document struct {
	name string
	text []byte
	kind string // kind of the origins
}

// node is a value in a document, with its path.
type node struct {
	doc  *document
	path string
	v    *hujson.Value
}

// settingsForm is the form of a file of settings.
const settingsForm = `an object of settings, such as {"stack": "mptcp"}`

// parseDocument parses the text, whose value must be an object of the given form.
func parseDocument(name, kind, form string, text []byte) (node, error) {
	d := &document{name: name, text: text, kind: kind}
	root := node{doc: d}
	if len(text) > maxFile {
		return root, fmt.Errorf("%s: %d bytes; the limit for a configuration is %d", name, len(text), maxFile)
	}
	if !utf8.Valid(text) {
		return root, fmt.Errorf("%s: is not UTF-8 text", name)
	}
	if at := depthError(text); at >= 0 {
		return root, fmt.Errorf("%s: more than %d nested objects and arrays", d.at(at), maxDepth)
	}
	v, err := hujson.Parse(text)
	if err != nil {
		if m := regexp.MustCompile(`^hujson: line (\d+), column (\d+): (?s:(.*))$`).FindStringSubmatch(err.Error()); m != nil {
			// The quoted character may be a newline.
			what := strings.Trim(strconv.QuoteToGraphic(m[3]), `"`)
			if strings.HasSuffix(what, "unexpected EOF") {
				what += "; expected " + form + ", to its closing brace"
			}
			return root, fmt.Errorf("%s:%s:%s: %s", name, m[1], m[2], strings.ReplaceAll(what, `\"`, `"`))
		}
		return root, fmt.Errorf("%s: %w", name, err)
	}
	root.v = &v
	if _, ok := v.Value.(*hujson.Object); !ok {
		return root, root.expected(form)
	}
	return root, nil
}

// maxDepth limits the nesting of values, because the parser is recursive.
const maxDepth = 32

// depthError returns the offset where a text exceeds maxDepth, or -1.
func depthError(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case rest[0] == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(rest, []byte("//")):
			i += max(bytes.IndexByte(rest, '\n'), 0)
		case bytes.HasPrefix(rest, []byte("/*")):
			i += max(bytes.Index(rest[2:], []byte("*/")), 0)
		case rest[0] == '[' || rest[0] == '{':
			if depth++; depth > maxDepth {
				return i
			}
		case rest[0] == ']' || rest[0] == '}':
			depth--
		}
	}
	return -1
}

// at formats an offset as FILE:LINE.
func (d *document) at(offset int) string {
	return d.name + ":" + strconv.Itoa(1+bytes.Count(d.text[:min(offset, len(d.text))], []byte{'\n'}))
}

func (n node) origin() Origin {
	return Origin{Kind: n.doc.kind, Where: n.doc.at(n.v.StartOffset), Path: n.path}
}

// errorf returns an error about this place.
func (n node) errorf(format string, args ...any) error {
	return n.origin().Wrap(fmt.Errorf(format, args...))
}

// expected returns an error which states that this value does not have the expected
// form.
func (n node) expected(what string) error { return n.errorf("%s; expected %s", n.what(), what) }

// what describes the value for an error message.
func (n node) what() string {
	switch v := n.v.Value.(type) {
	case *hujson.Object:
		return "an object"
	case *hujson.Array:
		return "an array"
	case hujson.Literal:
		if s := string(v); len(s) <= 60 {
			return s
		}
		return "a long string"
	}
	return "nothing"
}

// member is a name and its value in an object.
type member struct {
	name string
	node
}

// members lists the members of an object, and rejects duplicate names.
func (n node) members(what string) ([]member, error) {
	o, ok := n.v.Value.(*hujson.Object)
	if !ok {
		return nil, n.expected(what)
	}
	seen := map[string]string{}
	var all []member
	for i := range o.Members {
		m := &o.Members[i]
		name := m.Name.Value.(hujson.Literal).String()
		path := name
		if q := strconv.Quote(name); strings.ContainsAny(name, ".[] ") || len(q) != len(name)+2 || name == "" {
			path = q // quoted, so that other characters stay on one line
		}
		if n.path != "" {
			path = n.path + "." + path
		}
		k := member{name, node{n.doc, path, &m.Value}}
		here := n.doc.at(m.Name.StartOffset)
		if first, twice := seen[name]; twice {
			return nil, fmt.Errorf("%s: %s: given twice, first at %s; remove one", here, path, first)
		}
		seen[name] = here
		all = append(all, k)
	}
	return all, nil
}

// elements lists an array's elements. If the value is not an array, elements
// returns the value itself as the only element.
func (n node) elements() []node {
	a, ok := n.v.Value.(*hujson.Array)
	if !ok {
		return []node{n}
	}
	all := make([]node, len(a.Elements))
	for i := range a.Elements {
		all[i] = node{n.doc, n.path + "[" + strconv.Itoa(i) + "]", &a.Elements[i]}
	}
	return all
}

// text returns the value of a string.
func (n node) text(what string) (string, error) {
	if v, ok := n.v.Value.(hujson.Literal); ok && v.Kind() == '"' {
		if s := v.String(); s != "" {
			return s, nil
		}
		return "", n.errorf("%w", errNoWords)
	}
	return "", n.expected(what)
}

// number returns the digits of an integer.
func (n node) number(what string) (string, error) {
	if v, ok := n.v.Value.(hujson.Literal); ok && v.Kind() == '0' {
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return strconv.FormatInt(i, 10), nil
		}
	}
	return "", n.expected(what)
}

// textOrNumber returns a value with or without a unit.
func (n node) textOrNumber(what string) (string, error) {
	if v, ok := n.v.Value.(hujson.Literal); ok && v.Kind() == '0' {
		return n.number(what)
	}
	return n.text(what)
}

// onOff converts true or false to on or off.
func (n node) onOff() (string, error) {
	if v, ok := n.v.Value.(hujson.Literal); ok {
		switch v.Kind() {
		case 't':
			return "on", nil
		case 'f':
			return "off", nil
		}
	}
	return "", n.expected("true or false")
}

// isText reports whether the value is a string.
func (n node) isText() bool {
	v, ok := n.v.Value.(hujson.Literal)
	return ok && v.Kind() == '"'
}

// isObject reports whether the value is an object.
func (n node) isObject() bool {
	_, ok := n.v.Value.(*hujson.Object)
	return ok
}

// word returns a Word with the value's origin.
func (n node) word(text string) Word { return Word{text, n.origin()} }

var errEmptyList = errors.New("an empty list; remove it or add a value")
