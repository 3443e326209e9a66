// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// The engines, as lklrun --engine has them.
const (
	supervise = "supervise"
	preload   = "preload"
)

// A place is where tests are run: on a stack, by an engine.
type place struct {
	stack, engine string // stack: or native
}

// String is the place as it is given and shown: the engine only when it is
// another than supervise.
func (p place) String() string {
	if p.engine == preload {
		return p.stack + "+" + p.engine
	}
	return p.stack
}

// places reads a list of them.
func places(list string) ([]place, error) {
	var all []place
	for _, w := range words(list) {
		stack, engine, found := strings.Cut(w, "+")
		switch {
		case !found:
			engine = supervise
		case engine != preload:
			return nil, fmt.Errorf("-stacks: %s: no engine %q; expected %s", w, engine, preload)
		}
		all = append(all, place{stack, engine})
	}
	return all, nil
}
