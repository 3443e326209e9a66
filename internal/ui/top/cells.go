// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/live"
)

// cell is a text and its width; a negative width aligns the text to the right.
type cell struct {
	text  string
	width int
}

// line joins cells with a blank between them. Text that is too long is cut.
func line(cells ...cell) string {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(c.String())
	}
	return b.String()
}

func (c cell) String() string {
	right, width := c.width < 0, max(c.width, -c.width)
	text := cut(c.text, width)
	fill := strings.Repeat(" ", width-ansi.StringWidth(text))
	if right {
		return fill + text
	}
	return text + fill
}

// cut shortens a text to a width and marks the cut. It also removes control characters,
// which could move the cursor, because names of processes may contain any characters.
func cut(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	return ansi.Truncate(text, max(width, 0), "~")
}

// absent stands for unknown values.
const absent = text.Absent

func bits(v live.Value) string {
	if !v.Known {
		return absent
	}
	return text.Scaled(float64(v.N), "")
}

func count(v live.Value) string {
	if !v.Known {
		return absent
	}
	return text.Scaled(float64(v.N), "")
}

func millis(v live.Value) string {
	if !v.Known {
		return absent
	}
	return text.Millis(v.N)
}

func percent(f *float64) string {
	if f == nil {
		return absent
	}
	return fmt.Sprintf("%.0f%%", *f)
}

func perSecond(f *float64) string {
	if f == nil {
		return absent
	}
	if *f < 10 {
		return fmt.Sprintf("%.1f", *f)
	}
	return text.Scaled(*f, "")
}

// Levels of a graph, from the lowest to the highest: Unicode's block elements, or
// ASCII characters.
var (
	blocks = []rune(" ▁▂▃▄▅▆▇█")
	ascii  = []rune(" _.:-=+*#")
)

// spark draws the last values of a series, the latest at the right. most is the value of
// the highest level. Unknown values are blank.
func spark(values []live.Value, most uint64, width int, levels []rune) string {
	values = values[max(0, len(values)-width):]
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(values)))
	for _, v := range values {
		level := 0
		if v.Known && v.N > 0 && most > 0 {
			// Any value above zero gets a visible level.
			level = max(1, int(float64(len(levels)-1)*float64(min(v.N, most))/float64(most)+0.5))
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}

// highest returns the highest of the last values in some series.
func highest(width int, series ...[]live.Value) (most uint64) {
	for _, values := range series {
		for _, v := range values[max(0, len(values)-width):] {
			if v.Known {
				most = max(most, v.N)
			}
		}
	}
	return most
}
