// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
	"strings"
)

// CompleteInterface lists the possible continuations of an interface specification
// that begins with word, each as a full word. The continuation is a type, one of
// the host's devices, or a key.
func CompleteInterface(word string, devices []string) []string {
	var all []string
	typ, rest, colon := strings.Cut(word, ":")
	if !colon && !strings.Contains(word, ",") {
		for _, t := range interfaceTypes {
			if t.Arg != "" {
				all = append(all, t.Name+":")
			} else {
				all = append(all, t.Name)
			}
		}
		return all
	}
	typ, _, _ = strings.Cut(typ, ",")
	t := findType(typ)
	if t == nil {
		return nil
	}
	if !strings.Contains(word, ",") {
		if t.Form == "FILE" {
			devices, _ = filepath.Glob(rest + "*") // rest may be no pattern
		}
		for _, d := range devices {
			if strings.HasPrefix(d, rest) {
				all = append(all, typ+":"+d)
			}
		}
		return all
	}
	comma := strings.LastIndexByte(word, ',')
	given := strings.Split(word[:comma], ",")
	for _, k := range interfaceKeys() {
		twice := slices.ContainsFunc(given, func(g string) bool {
			name, _, _ := strings.Cut(g, "=")
			return name == k.name
		})
		if !k.takenBy(t) || twice && !k.list {
			continue
		}
		name := k.name
		if !k.flag {
			name += "="
		}
		all = append(all, word[:comma+1]+name)
	}
	return all
}
