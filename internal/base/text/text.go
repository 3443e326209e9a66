// SPDX-License-Identifier: Apache-2.0

// Package text formats text for people: one-line messages, numbers with units, commands as
// a shell reads them, and colours.
package text

import (
	"strings"
	"unicode"
)

// Absent stands for a value that the stack does not report. It is not 0, which would be a
// value.
const Absent = "-"

// OneLine joins the lines of a message, such as that of errors.Join, and makes it Plain.
func OneLine(s string) string {
	return Plain(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), "; "))
}

// Plain replaces control characters by question marks, because a terminal would interpret
// them: a name or a message may come from another machine, which is not trusted.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}
