// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"

	"github.com/lklrun/lklrun/internal/diag/live"
)

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
