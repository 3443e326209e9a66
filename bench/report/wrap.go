// SPDX-License-Identifier: Apache-2.0

package report

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// proseWidth is the maximum width of a line of prose in the documentation, in characters.
const proseWidth = 100

// unwrapped matches lines that keep their length: tables, headings, pictures and comments.
var unwrapped = regexp.MustCompile(`^(\s*\||#|!\[|<)`)

// wrap breaks the lines of prose that are too wide. The lines after the first one of a list
// item are indented.
func wrap(page string) string {
	lines := strings.Split(page, "\n")
	for n, line := range lines {
		if utf8.RuneCountInString(line) <= proseWidth || unwrapped.MatchString(line) {
			continue
		}
		indent := ""
		if strings.HasPrefix(line, "- ") {
			indent = "  "
		}
		var b strings.Builder
		at := 0
		for i, word := range strings.Fields(line) {
			size := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case at+1+size > proseWidth:
				b.WriteString("\n" + indent)
				at = len(indent)
			default:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(word)
			at += size
		}
		lines[n] = b.String()
	}
	return strings.Join(lines, "\n")
}
