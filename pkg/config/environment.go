// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
)

// otherVariables lists the LKLRUN_* variables that are not settings: paths of files
// and programs. Variables whose name begins with one of ownPrefixes are for
// lklrun's own programs and tests.
var (
	otherVariables = []string{"LKLRUN_CONFIG", "LKLRUN_STACKS", "LKLRUN_BIN", "LKLRUN_RUN_DIR", "LKLRUN_BUNDLES", "LKLRUN_DEVICE"}
	ownPrefixes    = []string{"LKLRUN_TEST_", "LKLRUN_PRELOAD_", "LKLRUN_CONFORMANCE_"}
)

// Environment reads the variables of settings, each as NAME=VALUE. Semicolons
// separate several values of one setting. Empty variables are ignored. Unknown
// ones produce a note.
func Environment(environ []string) Layer {
	values := variables(environ)
	var l Layer
	for n := range settings {
		s := &settings[n]
		v, name := values[s.Variable()], s.Variable()
		if name == "" || v == "" {
			continue
		}
		words := []string{v}
		if s.List() {
			words = fields(v, ";")
		}
		if len(words) == 0 {
			continue
		}
		l.Set(s.Key, Origin{Kind: FromEnvironment, Where: name}, words...)
	}
	for name, v := range values {
		if v != "" && strings.HasPrefix(name, "LKLRUN_") && !knownVariable(name) {
			l.Notes = append(l.Notes, name+": no such setting, ignored; `lklrun --help` lists the flags, which name the variables")
		}
	}
	slices.Sort(l.Notes)
	return l
}

func knownVariable(name string) bool {
	return slices.Contains(otherVariables, name) ||
		slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(settings, func(s Setting) bool { return s.Variable() == name })
}

// variables returns the variables of an environment by name. If a name appears
// several times, the first variable applies, as in getenv(3).
func variables(environ []string) map[string]string {
	values := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if _, known := values[name]; !known {
			values[name] = value
		}
	}
	return values
}

// fields splits at a separator and drops empty fields.
func fields(s, sep string) []string {
	var all []string
	for f := range strings.SplitSeq(s, sep) {
		if f = strings.TrimSpace(f); f != "" {
			all = append(all, f)
		}
	}
	return all
}
