// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"unicode/utf8"
)

// leastLast is the minimum width of the last column of a narrow table.
const leastLast = 16

// shrink reduces the widest column to the width of its next narrower cell. It repeats
// this until the last column has enough room.
func (t *Table) shrink(width []int, lines [][]string) {
	last := len(width) - 1
	for {
		sum, widest := min(width[last], leastLast)+2*last, 0
		for i, n := range width[:last] {
			sum += n
			if n > width[widest] {
				widest = i
			}
		}
		next := 0
		for _, line := range lines {
			if n := utf8.RuneCountInString(line[widest]); n < width[widest] {
				next = max(next, n)
			}
		}
		if sum <= t.most || last == 0 || next < utf8.RuneCountInString(t.head[widest]) {
			return
		}
		width[widest] = next
	}
}

// narrow writes one row on as many lines as needed.
func (t *Table) narrow(b *strings.Builder, width []int, row []string) {
	at, start := 0, 0 // current position, and start of the cell's column
	put := func(word string, column int) {
		n := utf8.RuneCountInString(word)
		if at > 0 && (at >= column || column+n > t.most) {
			b.WriteByte('\n')
			at = 0
		}
		column = max(0, min(column, t.most-n))
		if at == 0 {
			b.WriteString(t.blank)
		}
		b.WriteString(strings.Repeat(" ", column-at) + word)
		at = column + n
	}
	for i, cell := range row {
		if i < len(row)-1 || t.right[i] {
			column := start
			if t.right[i] {
				column += max(0, width[i]-utf8.RuneCountInString(cell))
			}
			put(cell, column)
			start += width[i] + 2
			continue
		}
		for n, word := range strings.Fields(cell) {
			if n > 0 && at+1+utf8.RuneCountInString(word) <= t.most && at >= start {
				b.WriteString(" " + word)
				at += 1 + utf8.RuneCountInString(word)
				continue
			}
			put(word, start)
		}
	}
	b.WriteByte('\n')
}
