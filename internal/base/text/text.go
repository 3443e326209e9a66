// SPDX-License-Identifier: Apache-2.0

// Package text formats text for people: one-line messages, numbers with units, commands
// quoted for a shell, and colours.
package text

import (
	"strings"
	"unicode"
)

// Absent stands for a value that the stack does not report. It differs from 0, which is a
// possible value.
const Absent = "-"

// OneLine joins the lines of a message, such as that of errors.Join, and applies Plain to
// it.
func OneLine(s string) string {
	return Plain(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), "; "))
}

// Plain replaces control characters, and those that change the direction or the lines of a
// text or are invisible, by question marks. A terminal would interpret these
// characters, and a name or a message may come from another machine, which is not
// trusted.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, s)
}
