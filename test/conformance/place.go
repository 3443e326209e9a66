// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// The engines, with the names of lklrun --engine.
const (
	supervise = "supervise"
	preload   = "preload"
	trace     = "trace"
)

// A place is where tests run: on a stack, with an engine.
type place struct {
	stack, engine string // stack: or native
}

// String returns the place in the form that the command line accepts. It omits the
// engine supervise.
func (p place) String() string {
	if p.engine != supervise && p.stack != native {
		return p.stack + "+" + p.engine
	}
	return p.stack
}

// places parses a list of places.
func places(list string) ([]place, error) {
	var all []place
	for _, w := range words(list) {
		stack, engine, found := strings.Cut(w, "+")
		switch {
		case !found:
			engine = supervise
		case engine != preload && engine != trace:
			return nil, fmt.Errorf("-stacks: %s: no engine %q; expected %s or %s", w, engine, preload, trace)
		}
		all = append(all, place{stack, engine})
	}
	return all, nil
}
