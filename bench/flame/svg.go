// SPDX-License-Identifier: Apache-2.0

package flame

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"hash/fnv"
	"io"
	"strings"
)

// A Graph is a flame graph as a picture of the report.
type Graph struct {
	Name, Title string
	Root        *Node
}

// FileName implements report.Plot.
func (g Graph) FileName() string { return g.Name }

// Caption implements report.Plot.
func (g Graph) Caption() string { return g.Title }

// Sizes in pixels.
const (
	width     = 1200.0
	rowHeight = 15.0
	letter    = 6.3 // maximum width of a letter
	narrowest = 1.0 // minimum width of a frame that is drawn
	margin    = 8.0
	headLine  = 20.0
)

// legend assigns hues to code, in the order of the legend.
var legend = []struct {
	what string
	is   func(file string) bool
	hue  int
}{
	{"the host's kernel", func(f string) bool { return f == Kernel }, 210},
	{"the stack (liblkl.so)", func(f string) bool { return strings.HasPrefix(f, "liblkl.so") }, 130},
	{"lklhost, lklrun, what they preload", func(f string) bool {
		return strings.HasPrefix(f, "lkl") && f != "lklbench" || strings.HasPrefix(f, "liblklpreload")
	}, 30},
	{"the program and its libraries", func(string) bool { return true }, 55},
}

// fill is a frame's colour: the hue shows its component, the rest distinguishes
// neighbours.
func (f Frame) fill() string {
	if f.File == "" {
		return "hsl(0,0%,82%)"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(f.Name)) // never fails
	for _, l := range legend {
		if l.is(f.File) {
			return fmt.Sprintf("hsl(%d,%d%%,%d%%)", l.hue, 55+h.Sum32()%20, 66+h.Sum32()/32%14)
		}
	}
	return ""
}

// WriteSVG draws the graph.
func (g Graph) WriteSVG(w io.Writer) error {
	total := max(g.Root.Count, 1)
	scale := (width - 2*margin) / float64(total)
	deep := depth(g.Root, scale)
	height := 2*headLine + float64(deep)*rowHeight + 2*margin
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="monospace" font-size="10">`+"\n", width, height, width, height)
	fmt.Fprintf(out, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(out, `<text x="%.0f" y="%.0f" font-size="13">%s</text>`+"\n", margin, margin+10, escape(fmt.Sprintf("%s (%d samples)", g.Title, g.Root.Count)))
	x := margin
	for _, l := range legend {
		fmt.Fprintf(out, `<rect x="%.0f" y="%.0f" width="10" height="10" fill="hsl(%d,65%%,72%%)"/><text x="%.0f" y="%.0f">%s</text>`+"\n",
			x, headLine+margin, l.hue, x+14, headLine+margin+9, escape(l.what))
		x += 14 + letter*float64(len(l.what)) + 3*margin
	}
	var draw func(n *Node, x float64, level int)
	draw = func(n *Node, x float64, level int) {
		wide := float64(n.Count) * scale
		if wide < narrowest {
			return
		}
		y := height - margin - float64(level+1)*rowHeight
		said := n.Name
		if n.File != "" {
			said += " (" + n.File + ")"
		}
		fmt.Fprintf(out, `<g><title>%s: %d samples, %.1f %%</title><rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="%s"/>`,
			escape(said), n.Count, 100*float64(n.Count)/float64(total), x, y, max(wide-0.4, 0.3), rowHeight-1, n.fill())
		if room := int((wide - 4) / letter); room >= 3 {
			name := n.Name
			if len(name) > room {
				name = name[:room-1] + "…"
			}
			fmt.Fprintf(out, `<text x="%.1f" y="%.1f">%s</text>`, x+2, y+rowHeight-4, escape(name))
		}
		fmt.Fprintln(out, `</g>`)
		for _, c := range n.Children() {
			draw(c, x, level+1)
			x += float64(c.Count) * scale
		}
	}
	draw(g.Root, margin, 0)
	fmt.Fprintln(out, `</svg>`)
	return out.Flush()
}

// depth is the number of rows drawn.
func depth(n *Node, scale float64) int {
	if float64(n.Count)*scale < narrowest {
		return 0
	}
	deepest := 0
	for _, c := range n.children {
		deepest = max(deepest, depth(c, scale))
	}
	return deepest + 1
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder never fails
	return b.String()
}
