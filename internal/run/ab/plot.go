// SPDX-License-Identifier: Apache-2.0

package ab

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// Sizes of the picture, in pixels.
const (
	plotHeight = 320 // height of the axis
	plotColumn = 140 // width of a variant's column
	plotMargin = 60  // width of the outer margin
	plotBox    = 40  // width of a box
	plotTicks  = 4   // number of lines above zero
)

// CheckPlot checks the file name of a plot.
func CheckPlot(path string) error {
	if !strings.EqualFold(filepath.Ext(path), ".svg") {
		return fmt.Errorf("%q: expected a file that ends in .svg", path)
	}
	return nil
}

// Plot draws the times of all variants as a box plot. A box extends from quartile to
// quartile, with the median inside. Each run is a point beside its box.
func (c *Comparison) Plot(path string) error {
	if err := os.WriteFile(path, c.svg(), 0o666); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

// svg draws the picture.
func (c *Comparison) svg() []byte {
	most := 0.0
	for i := range c.Variants {
		if m := c.Variants[i].Metric("time_s"); m != nil {
			most = max(most, m.Max)
		}
	}
	y := func(seconds float64) float64 {
		return plotMargin + plotHeight*(1-seconds/max(most, 1e-9))
	}
	width := 2*plotMargin + plotColumn*len(c.Variants)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, plotHeight+2*plotMargin)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" font-size="14">%s</text>`+"\n", width/2, plotMargin/2, html.EscapeString(c.title()))
	for i := range plotTicks + 1 {
		at := most * float64(i) / plotTicks
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`, plotMargin, width-plotMargin, y(at), y(at))
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%.3g s</text>`+"\n", plotMargin-6, y(at)+4, at)
	}
	for i := range c.Variants {
		x := float64(plotMargin) + plotColumn*(float64(i)+0.5)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, plotMargin+plotHeight+20, html.EscapeString(c.Variants[i].Name))
		if m := c.Variants[i].Metric("time_s"); m != nil { // nil if no run succeeded
			drawBox(&b, m, x, y)
		}
	}
	fmt.Fprintln(&b, `</svg>`)
	return b.Bytes()
}

// drawBox draws a variant's box, its whiskers and its runs around x.
func drawBox(b *bytes.Buffer, m *Metric, x float64, y func(float64) float64) {
	fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="black"/>`, x, x, y(m.Min), y(m.Max))
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%d" height="%.1f" fill="#9ecae1" stroke="black"/>`, x-plotBox/2, y(m.High), plotBox, y(m.Low)-y(m.High))
	fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="black" stroke-width="2"/>`, x-plotBox/2, x+plotBox/2, y(m.Median), y(m.Median))
	for _, v := range m.values {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2"/>`, x+plotBox*0.75, y(v))
	}
	b.WriteByte('\n')
}

// title returns the command, truncated to fit.
func (c *Comparison) title() string {
	r := []rune(strings.Join(c.Command, " "))
	if len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return string(r)
}
