// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp compiles regular expressions when they are first used. All variables of
// a package are otherwise initialized at each start of a program, and a run needs none of
// these expressions.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression. The function panics if the
// expression is wrong.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
