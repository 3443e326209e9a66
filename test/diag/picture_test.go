// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit/terminal"

	"github.com/hinshun/vt10x"

	"github.com/lklrun/lklrun/test/kit"
)

// The size of a picture's cells in pixels, and vt10x's attributes (see its state.go).
const (
	cellWidth, cellHeight = 9, 18
	attrReverse, attrBold = 1, 4
)

// svg draws the screen. Text remains text. The blocks of a graph become rectangles, which
// look the same with every font.
func svg(screen vt10x.View) string {
	columns, rows := screen.Size()
	width, height := (columns+2)*cellWidth, (rows+1)*cellHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="15">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#1b1e24"/>`+"\n", width, height)
	for y := range rows {
		for x := 0; x < columns; {
			g := screen.Cell(x, y)
			if level := strings.IndexRune("▁▂▃▄▅▆▇█", g.Char); level >= 0 {
				h := float64(level/3+1) * cellHeight / 8 // three bytes per character
				fmt.Fprintf(&b, `<rect x="%d" y="%.2f" width="%d" height="%.2f" fill="#5fafd7"/>`+"\n", (x+1)*cellWidth, float64((y+1)*cellHeight)+cellHeight/2-h, cellWidth, h)
				x++
				continue
			}
			x += text(&b, screen, x, y, columns)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// text writes the cells from x on that have the same attributes, one word or several. It
// returns the number of cells.
func text(b *strings.Builder, vt vt10x.View, x, y, columns int) int {
	first := vt.Cell(x, y)
	var run strings.Builder
	n := 0
	for ; x+n < columns; n++ {
		g := vt.Cell(x+n, y)
		if g.FG != first.FG || g.Mode != first.Mode || strings.ContainsRune("▁▂▃▄▅▆▇█", g.Char) {
			break
		}
		if g.Char == 0 {
			g.Char = ' '
		}
		run.WriteRune(g.Char)
	}
	words := strings.TrimRight(run.String(), " ")
	if words == "" {
		return n
	}
	lead := len(words) - len(strings.TrimLeft(words, " "))
	words = words[lead:]
	fill, weight := "#d0d3d8", ""
	if first.FG == vt10x.Red || first.FG == vt10x.LightRed {
		fill = "#ff6c6b"
	}
	if first.Mode&attrBold != 0 {
		fill, weight = "#ffffff", ` font-weight="bold"`
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s"%s textLength="%d" xml:space="preserve">`, (x+lead+1)*cellWidth, (y+1)*cellHeight+4, fill, weight, len([]rune(words))*cellWidth)
	_ = xml.EscapeText(b, []byte(words)) // a strings.Builder returns no errors
	b.WriteString("</text>\n")
	return n
}

// savePicture checks that the screen can be drawn, and saves the drawing if pictures are
// requested.
func savePicture(term *terminal.Terminal, t *testing.T, name string) {
	t.Helper()
	var drawn string
	term.Draw(func(screen vt10x.View) { drawn = svg(screen) })
	d := xml.NewDecoder(strings.NewReader(drawn))
	for {
		tok, err := d.Token()
		if tok == nil {
			if err.Error() != "EOF" {
				t.Errorf("the picture is no XML: %v", err)
			}
			break
		}
	}
	if len(drawn) > 200_000 || !strings.Contains(drawn, "lklctl top") || !strings.Contains(drawn, "#5fafd7") {
		t.Errorf("a picture of %d bytes:\n%.2000s", len(drawn), drawn)
	}
	kit.WriteFile(t, filepath.Join(pictures(t), name), drawn)
}
