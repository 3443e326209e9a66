// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Palette colours words for a terminal; for anything else they stay as they are.
type Palette struct{ terminal, colour bool }

// Paint is the palette for what is written to w: colours where that is a
// terminal that can show them, unless NO_COLOR is set (https://no-color.org).
func Paint(w io.Writer) Palette {
	f, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd()))
	return Palette{tty, tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal says whether a person looks at it.
func (p Palette) Terminal() bool { return p.terminal }

// Colour says whether escape sequences of colour are wanted.
func (p Palette) Colour() bool { return p.colour }

// Bold is for headings. All are ECMA-48's select graphic rendition.
func (p Palette) Bold(s string) string { return p.sgr("1", s) }

// Dim is for what matters less.
func (p Palette) Dim(s string) string { return p.sgr("2", s) }

// Red is for what is wrong.
func (p Palette) Red(s string) string { return p.sgr("31", s) }

// Green is for what is well.
func (p Palette) Green(s string) string { return p.sgr("32", s) }

// Yellow is for what wants a look.
func (p Palette) Yellow(s string) string { return p.sgr("33", s) }

func (p Palette) sgr(code, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
