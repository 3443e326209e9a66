// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Screen is a writer whose lines have room for Width columns.
type Screen struct {
	io.Writer
	Width int // 0: no limit
}

// Columns returns the width.
func (s Screen) Columns() int { return s.Width }

// Widths of a terminal: one that does not tell, and the narrowest for which tables wrap.
const (
	usualColumns = 80
	leastColumns = 40
)

// Columns returns the number of columns of a line of w, or 0 if there is no limit. Only
// a terminal has a limit: in a pipe or a file, a table has one line per row. A writer
// around a terminal implements the method Columns.
func Columns(w io.Writer) int {
	switch v := w.(type) {
	case interface{ Columns() int }:
		return v.Columns()
	case *os.File:
		if !term.IsTerminal(int(v.Fd())) {
			return 0
		}
		if n, _, err := term.GetSize(int(v.Fd())); err == nil && n > 0 {
			return max(n, leastColumns)
		}
		return usualColumns
	}
	return 0
}
