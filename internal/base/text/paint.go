// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Palette adds colours to text for a terminal. For other outputs it leaves the text
// unchanged.
type Palette struct{ terminal, colour bool }

// Paint returns the palette for output to w. It uses colours if w is a terminal that
// supports them and NO_COLOR is not set (https://no-color.org).
func Paint(w io.Writer) Palette {
	f, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd()))
	return Palette{tty, tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal reports whether the output goes to a terminal.
func (p Palette) Terminal() bool { return p.terminal }

// Colour reports whether the palette uses colours.
func (p Palette) Colour() bool { return p.colour }

// Bold formats a heading. All formats use ECMA-48's select graphic rendition.
func (p Palette) Bold(s string) string { return p.sgr("1", s) }

// Dim formats less important text.
func (p Palette) Dim(s string) string { return p.sgr("2", s) }

// Red formats an error.
func (p Palette) Red(s string) string { return p.sgr("31", s) }

// Green formats a good state.
func (p Palette) Green(s string) string { return p.sgr("32", s) }

// Yellow formats a warning.
func (p Palette) Yellow(s string) string { return p.sgr("33", s) }

func (p Palette) sgr(code, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
