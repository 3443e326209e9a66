// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// maxFile limits the size of a topology file, far above any realistic size.
const maxFile = 1 << 20

// maxDepth limits the nesting of values, because the parser is recursive.
const maxDepth = 32

// TopologyError is an error in a topology.
type TopologyError struct {
	Where string // FILE:LINE; empty: the topology is not from a file
	Path  string // such as nodes.client.wires[1]; empty: the whole topology
	Err   error
}

// Error names the place.
func (e *TopologyError) Error() string {
	text := e.Err.Error()
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Where != "" {
		text = e.Where + ": " + text
	}
	return text
}

// Unwrap returns the error without the place.
func (e *TopologyError) Unwrap() error { return e.Err }

func wrong(path, format string, args ...any) error {
	return &TopologyError{Path: path, Err: fmt.Errorf(format, args...)}
}

// ReadFile reads a topology from a file. See Parse.
func ReadFile(name string) (*Topology, error) { return Vars(nil).ReadFile(name) }

// ReadFile reads a topology from a file, with these values of its variables.
func (v Vars) ReadFile(name string) (*Topology, error) {
	st, err := os.Stat(name)
	switch {
	case err == nil && st.IsDir():
		return nil, fmt.Errorf("%s: is a directory; expected a topology file", name)
	case err == nil && st.Size() > maxFile:
		return nil, fmt.Errorf("%s: %d bytes; the limit for a topology is %d", name, st.Size(), maxFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		err = fmt.Errorf("%s: %w", name, pe.Err)
	}
	if err != nil {
		return nil, err
	}
	return v.Parse(name, text)
}

// Parse parses a topology: JSON with comments and trailing commas. It rejects
// unknown keys, invalid values and impossible topologies. Such an error is a
// *TopologyError, which names the file, the line and the path in the file.
func Parse(name string, text []byte) (*Topology, error) { return Vars(nil).Parse(name, text) }

// Parse parses a topology, with these values of its variables.
func (v Vars) Parse(name string, text []byte) (*Topology, error) {
	d := &document{name: name, text: text, lines: map[string]int{}, given: v}
	t := new(Topology)
	if err := d.read(t); err != nil {
		return nil, err
	}
	if t.Name == "" {
		t.Name = nameOf(name)
	}
	if _, err := t.Plan(); err != nil {
		return nil, d.locate(err)
	}
	return t, nil
}

// nameOf derives the name of a lab from that of its file.
func nameOf(file string) string {
	base, _, _ := strings.Cut(filepath.Base(file), ".")
	var b strings.Builder
	for _, c := range strings.ToLower(base) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || b.Len() > 0 && (c == '-' || c == '_') {
			b.WriteRune(c)
		}
	}
	s := b.String()
	s = strings.TrimRight(s[:min(len(s), maxName)], "-_")
	if s == "" {
		return "lab"
	}
	return s
}

// document is a file of JSON with comments.
type document struct {
	name  string
	text  []byte
	lines map[string]int // line of each path

	given, vars Vars            // values of variables: those of the caller, and all
	used        map[string]bool // variables that the file uses
}

func (d *document) read(t *Topology) error {
	switch {
	case !utf8.Valid(d.text):
		return fmt.Errorf("%s: is not UTF-8 text", d.name)
	case len(d.text) > maxFile:
		return fmt.Errorf("%s: %d bytes; the limit for a topology is %d", d.name, len(d.text), maxFile)
	case depthError(d.text):
		return fmt.Errorf("%s: more than %d nested objects and arrays", d.name, maxDepth)
	}
	v, err := hujson.Parse(d.text)
	if m := regexp.MustCompile(`^hujson: line (\d+), column (\d+): (?s:(.*))$`).FindStringSubmatch(fmt.Sprint(err)); m != nil {
		return fmt.Errorf("%s:%s:%s: %s", d.name, m[1], m[2], strings.ReplaceAll(strings.Trim(strconv.QuoteToGraphic(m[3]), `"`), `\"`, `"`))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if err := d.readVars(&v); err != nil {
		return err
	}
	if err := d.value(&v, "", reflect.ValueOf(t).Elem()); err != nil {
		return err
	}
	return d.checkVars(t)
}

// depthError reports whether values are nested deeper than maxDepth. Brackets in
// strings and comments count as well, which is harmless at this depth.
func depthError(text []byte) bool {
	depth := 0
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxDepth {
			return true
		}
	}
	return false
}

// at formats a place as FILE:LINE.
func (d *document) at(line int) string { return d.name + ":" + strconv.Itoa(line) }

func (d *document) line(v *hujson.Value) int {
	return 1 + bytes.Count(d.text[:min(v.StartOffset, len(d.text))], []byte{'\n'})
}

// locate adds the line to an error that names a path. If the file does not
// contain the path, locate uses the innermost object that contains it.
func (d *document) locate(err error) error {
	var te *TopologyError
	if !errors.As(err, &te) || te.Where != "" {
		return err
	}
	path := te.Path
	for {
		if line, ok := d.lines[path]; ok {
			te.Where = d.at(line)
			return te
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			te.Where = d.name
			return te
		}
		path = path[:cut]
	}
}

// value stores a value of the file in a Go value.
func (d *document) value(v *hujson.Value, path string, to reflect.Value) error {
	d.lines[path] = d.line(v)
	fail := func(format string, args ...any) error { return d.locate(wrong(path, format, args...)) }
	expected := func(what string) error { return fail("%s; expected %s", describe(v), what) }
	lit, _ := v.Value.(hujson.Literal)
	if lit.Kind() == '"' {
		var err error
		if lit, err = d.expand(lit, path, to.Kind() == reflect.Int); err != nil {
			return d.locate(err)
		}
	}
	switch {
	case to.Type() == reflect.TypeFor[Command]() && lit.Kind() == '"':
		to.Set(reflect.ValueOf(Command{"sh", "-c", lit.String()}))
		return nil
	case to.Type() == reflect.TypeFor[List]() && lit.Kind() == '"':
		to.Set(reflect.ValueOf(List{lit.String()}))
		return nil
	case to.Type() == reflect.TypeFor[End]() && lit.Kind() == '"':
		to.Set(reflect.ValueOf(End{Wire: lit.String()}))
		return nil
	}
	switch to.Kind() {
	case reflect.Struct:
		return d.object(v, path, to, expected)
	case reflect.Map:
		return d.entries(v, path, to, expected)
	case reflect.Slice:
		a, ok := v.Value.(*hujson.Array)
		if !ok {
			return expected(form(to.Type()))
		}
		for n := range a.Elements {
			e := reflect.New(to.Type().Elem()).Elem()
			if err := d.value(&a.Elements[n], fmt.Sprintf("%s[%d]", path, n), e); err != nil {
				return err
			}
			to.Set(reflect.Append(to, e))
		}
		if to.Len() == 0 {
			return fail("an empty list; remove it or add a value")
		}
	case reflect.String:
		if lit.Kind() != '"' {
			return expected("a string")
		}
		if lit.String() == "" {
			return fail("empty value; remove it or add a value")
		}
		to.SetString(lit.String())
	case reflect.Int:
		n, err := strconv.ParseInt(string(lit), 10, 32)
		if lit.Kind() != '0' || err != nil || n < 0 {
			return expected("a number")
		}
		to.SetInt(n)
	case reflect.Bool:
		if k := lit.Kind(); k != 't' && k != 'f' {
			return expected("true or false")
		}
		to.SetBool(lit.Kind() == 't')
	}
	return nil
}

// object stores the members of an object in the fields of a struct.
func (d *document) object(v *hujson.Value, path string, to reflect.Value, expected func(string) error) error {
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return expected(form(to.Type()))
	}
	var keys []string
	fields := map[string]reflect.Value{}
	for n := range to.NumField() {
		key, _, _ := strings.Cut(to.Type().Field(n).Tag.Get("json"), ",")
		keys = append(keys, key)
		fields[key] = to.Field(n)
	}
	return d.members(o, path, func(key, at string, m *hujson.ObjectMember) error {
		f, ok := fields[key]
		if !ok {
			return d.locate(wrong(at, "unknown key; %s", suggest.Suggest(key, keys, "expected one of "+strings.Join(keys, ", "))))
		}
		return d.value(&m.Value, at, f)
	})
}

// entries stores the members of an object in a map.
func (d *document) entries(v *hujson.Value, path string, to reflect.Value, expected func(string) error) error {
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return expected(form(to.Type()))
	}
	to.Set(reflect.MakeMap(to.Type()))
	return d.members(o, path, func(key, at string, m *hujson.ObjectMember) error {
		e := reflect.New(to.Type().Elem()).Elem()
		if lit, ok := m.Value.Value.(hujson.Literal); ok && lit.Kind() == '0' && e.Kind() == reflect.String {
			e.SetString(string(lit)) // a sysctl
		} else if err := d.value(&m.Value, at, e); err != nil {
			return err
		}
		to.SetMapIndex(reflect.ValueOf(key), e)
		return nil
	})
}

// members calls do for each member of an object. It rejects a name that occurs
// twice.
func (d *document) members(o *hujson.Object, path string, do func(key, at string, m *hujson.ObjectMember) error) error {
	seen := map[string]int{}
	for n := range o.Members {
		m := &o.Members[n]
		key := m.Name.Value.(hujson.Literal).String()
		at := join(path, key)
		line := d.line(&m.Name)
		if first, twice := seen[key]; twice {
			return &TopologyError{d.at(line), at, fmt.Errorf("given twice, first at %s; remove one", d.at(first))}
		}
		seen[key] = line
		d.lines[at] = line
		if err := do(key, at, m); err != nil {
			return err
		}
	}
	return nil
}

// join appends a key to a path. It quotes a key that could be mistaken for a
// path.
func join(path, key string) string {
	if q := strconv.Quote(key); strings.ContainsAny(key, ".[] ") || len(q) != len(key)+2 || key == "" {
		key = q
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// form describes the form of a value in a file.
func form(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Topology]():
		return `an object such as {"nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"]}}}`
	case reflect.TypeFor[End]():
		return `the name of a wire, or an object such as {"wire": "a", "ip": "10.0.1.7"}`
	case reflect.TypeFor[Command]():
		return `an array of words such as ["iperf3", "-s"], or a line for sh`
	case reflect.TypeFor[List]():
		return "a string or an array of strings"
	}
	if t.Kind() == reflect.Slice {
		return "an array"
	}
	return "an object"
}

// describe describes a value for an error message.
func describe(v *hujson.Value) string {
	switch v := v.Value.(type) {
	case *hujson.Object:
		return "an object"
	case *hujson.Array:
		return "an array"
	case hujson.Literal:
		if len(v) <= 60 {
			return string(v)
		}
	}
	return "a long string"
}
