// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// Vars are values for the variables of a topology file. They replace the values that
// the file gives.
type Vars map[string]string

// dirVar is the variable that stands for the folder of the file.
const dirVar = "dir"

var (
	varName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
	varUse  = regexp.MustCompile(`\$\{([A-Za-z][A-Za-z0-9_-]*)\}`)
	// runPath matches the paths of commands, in which ${x} can be a variable of sh.
	runPath = regexp.MustCompile(`\.run(\[\d+\])?$`)
)

// readVars reads the variables, before the strings that use them.
func (d *document) readVars(v *hujson.Value) error {
	d.vars, d.used = Vars{}, map[string]bool{}
	if o, ok := v.Value.(*hujson.Object); ok {
		for n := range o.Members {
			if m := &o.Members[n]; m.Name.Value.(hujson.Literal).String() == "vars" {
				if err := d.value(&m.Value, "vars", reflect.ValueOf(&d.vars).Elem()); err != nil {
					return err
				}
			}
		}
	}
	for _, name := range sorted(d.vars) {
		switch {
		case !varName.MatchString(name):
			return d.locate(wrong(join("vars", name), "%q is not a name; expected letters, digits, '-' and '_'", name))
		case name == dirVar:
			return d.locate(wrong(join("vars", name), "this variable is always the folder of the file; rename yours"))
		}
	}
	for _, name := range sorted(d.given) {
		if _, ok := d.vars[name]; !ok {
			return d.locate(wrong("vars", "no variable %q; %s", name, d.known(name)))
		}
		d.vars[name] = d.given[name]
	}
	return nil
}

// known suggests a variable.
func (d *document) known(name string) string {
	names := sorted(d.vars)
	if len(names) == 0 {
		return `the file has none; add "vars"`
	}
	return suggest.Suggest(name, names, "there are "+strings.Join(names, ", "))
}

// expand replaces the variables in a string. If the string is a number afterwards
// and number is set, the result is a number.
func (d *document) expand(lit hujson.Literal, path string, number bool) (hujson.Literal, error) {
	text := lit.String()
	if !strings.Contains(text, "${") || path == "vars" || strings.HasPrefix(path, "vars.") {
		return lit, nil
	}
	var failed error
	expanded := varUse.ReplaceAllStringFunc(text, func(use string) string {
		name := varUse.FindStringSubmatch(use)[1]
		value, ok := d.vars[name]
		if name == dirVar {
			folder, err := filepath.Abs(filepath.Dir(d.name))
			if err != nil {
				failed = wrong(path, "the folder of the file: %w", err)
			}
			return folder
		}
		if !ok && runPath.MatchString(path) {
			return use
		}
		if !ok {
			failed = wrong(path, "no variable %q; %s", name, d.known(name))
		}
		d.used[name] = true
		return value
	})
	if failed != nil {
		return nil, failed
	}
	if number {
		return hujson.Literal(expanded), nil
	}
	return hujson.String(expanded), nil
}

// checkVars sets the variables of a topology, all of which must be in use.
func (d *document) checkVars(t *Topology) error {
	if len(d.vars) > 0 {
		t.Vars = d.vars
	}
	for _, name := range sorted(d.vars) {
		if !d.used[name] {
			return d.locate(wrong(join("vars", name), "nothing uses this variable; add ${%s} to a string, or remove it", name))
		}
	}
	return nil
}
