// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Palette colours text for a terminal; elsewhere the text stays unchanged.
type Palette struct{ terminal, colour bool }

// Paint is the palette for output to w: colours if w is a terminal that can show them,
// unless NO_COLOR is set (https://no-color.org).
func Paint(w io.Writer) Palette {
	f, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd()))
	return Palette{tty, tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal reports whether the output goes to a terminal.
func (p Palette) Terminal() bool { return p.terminal }

// Colour reports whether colours are wanted.
func (p Palette) Colour() bool { return p.colour }

// Bold is for headings. All use ECMA-48's select graphic rendition.
func (p Palette) Bold(s string) string { return p.sgr("1", s) }

// Dim is for less important text.
func (p Palette) Dim(s string) string { return p.sgr("2", s) }

// Red is for errors.
func (p Palette) Red(s string) string { return p.sgr("31", s) }

// Green is for good states.
func (p Palette) Green(s string) string { return p.sgr("32", s) }

// Yellow is for warnings.
func (p Palette) Yellow(s string) string { return p.sgr("33", s) }

func (p Palette) sgr(code, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
