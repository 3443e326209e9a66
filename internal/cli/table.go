// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Absent stands in a table for what the stack does not know: not 0, which
// would be a value.
const Absent = "-"

// Table prints rows in columns as wide as their widest cell, two blanks apart.
// Nothing is drawn around it: each line splits into its fields.
type Table struct {
	head  []string
	right map[int]bool
	rows  [][]string
	below map[int]string // lines beneath a row, by its number
	blank string         // in front of each line
	most  int            // columns of a line; 0: as many as it takes
	bare  bool           // without the headings
}

// NewTable makes a table with a heading for each column; a heading that starts
// with '>' (which is not printed) aligns its column to the right.
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

// Row adds a row; empty cells are printed as Absent, all are made Plain.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.head))
	copy(row, cells)
	for i := range row {
		row[i] = Plain(row[i])
		if row[i] == "" {
			row[i] = Absent
		}
	}
	t.rows = append(t.rows, row)
}

// Below puts lines beneath the last row, as they are.
func (t *Table) Below(lines string) { t.below[len(t.rows)] += lines }

// Indent puts blanks in front of each line.
func (t *Table) Indent(blanks int) *Table {
	t.blank = strings.Repeat(" ", blanks)
	return t
}

// Bare leaves out the headings.
func (t *Table) Bare() *Table {
	t.bare = true
	return t
}

// Narrow keeps the table to the columns of a terminal: a cell that is wider than
// its column has those behind it on the next line, and the last one's words go
// on below each other. No word is cut.
func (t *Table) Narrow() *Table {
	t.most = terminal - len(t.blank)
	return t
}

// Write prints heading and rows.
func (t *Table) Write(w io.Writer) error {
	lines := append([][]string{t.head}, t.rows...)
	width := make([]int, len(t.head))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
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
				b.WriteString(cell) // nothing trails
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
