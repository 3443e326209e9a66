// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"
	"unicode"
)

// Quote formats a command for a shell, on one line.
func Quote(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=+:,./@%^", r) || r >= 0xa0 && unicode.IsPrint(r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	if strings.IndexFunc(word, unicode.IsControl) < 0 {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	// $'...' (POSIX.1-2024, 2.2.4) keeps control characters out of the line.
	var b strings.Builder
	for _, r := range word {
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(r):
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteRune(r)
		}
	}
	return "$'" + b.String() + "'"
}
