// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/lklrun/lklrun/internal/base/text"
)

// Table prints rows in columns. A column is as wide as its widest cell, and two blanks
// separate columns. There are no borders, so that scripts can split a line into fields.
type Table struct {
	head  []string
	right map[int]bool
	rows  [][]string
	below map[int]string // lines below each row, by the row's number
	blank string         // blanks at the start of each line
	wraps bool           // lines fit in a terminal
	most  int            // columns of a line; 0: no limit
	bare  bool           // without the headings
}

// NewTable makes a table with a heading for each column. A heading that starts with '>',
// which is not printed, aligns its column to the right.
func NewTable(head ...string) *Table {
	t := &Table{right: map[int]bool{}, below: map[int]string{}}
	for i, h := range head {
		if strings.HasPrefix(h, ">") {
			t.right[i], h = true, h[1:]
		}
		t.head = append(t.head, h)
	}
	return t
}

// Row adds a row. Empty cells are printed as Absent. Row applies Plain to all
// cells.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.head))
	copy(row, cells)
	for i := range row {
		row[i] = text.Plain(row[i])
		if row[i] == "" {
			row[i] = text.Absent
		}
	}
	t.rows = append(t.rows, row)
}

// Below adds lines below the last row, without changing them.
func (t *Table) Below(lines string) { t.below[len(t.rows)] += lines }

// Indent adds blanks at the start of each line.
func (t *Table) Indent(blanks int) *Table {
	t.blank = strings.Repeat(" ", blanks)
	return t
}

// Bare omits the headings.
func (t *Table) Bare() *Table {
	t.bare = true
	return t
}

// Narrow limits the table to the width of a terminal, if it is written to one. If a cell
// is wider than its column, the row continues on the next line. The text of the last
// column wraps. No word is cut.
func (t *Table) Narrow() *Table {
	t.wraps = true
	return t
}

// Write prints headings and rows.
func (t *Table) Write(w io.Writer) error {
	lines := append([][]string{t.head}, t.rows...)
	width := make([]int, len(t.head))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	if t.most = 0; t.wraps {
		t.most = max(Columns(w)-len(t.blank), 0)
	}
	if t.most > 0 {
		t.shrink(width, lines)
	}
	for n, line := range lines {
		if n == 0 && t.bare {
			continue
		}
		if t.most > 0 {
			t.narrow(&b, width, line)
			b.WriteString(t.below[n])
			continue
		}
		b.WriteString(t.blank)
		for i, cell := range line {
			if i > 0 {
				b.WriteString("  ")
			}
			fill := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			switch {
			case t.right[i]:
				b.WriteString(fill + cell)
			case i == len(line)-1:
				b.WriteString(cell) // no trailing blanks
			default:
				b.WriteString(cell + fill)
			}
		}
		b.WriteByte('\n')
		b.WriteString(t.below[n])
	}
	_, err := io.WriteString(w, b.String())
	return err
}
