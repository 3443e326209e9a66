// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lklrun/lklrun/bench/table"
)

// Width is the width of a terminal, to which Text limits tables.
const Width = 80

// Default returns the tables that every scenario has, one for each unit. Each has a row
// for each measurement and a column for each variant. A cell contains the median, and its
// ratio to the host's median in brackets.
func Default(s *table.Set, scenario string) []Table {
	type block struct {
		unit     string
		variants []string
		rows     []string
		keys     map[string]table.Key // row, variant
	}
	var blocks []*block
	for _, k := range s.Keys(scenario) {
		for _, u := range s.Units(k) {
			at := slices.IndexFunc(blocks, func(b *block) bool { return b.unit == u })
			if at < 0 {
				at = len(blocks)
				blocks = append(blocks, &block{unit: u, keys: map[string]table.Key{}})
			}
			b := blocks[at]
			if !slices.Contains(b.variants, k.Variant) {
				b.variants = append(b.variants, k.Variant)
			}
			if label := Label(k); !slices.Contains(b.rows, label) {
				b.rows = append(b.rows, label)
			}
			b.keys[Label(k)+"\n"+k.Variant] = k
		}
	}
	var tables []Table
	for _, b := range blocks {
		t := Table{Title: b.unit, Head: append([]string{b.unit}, b.variants...)}
		for _, row := range b.rows {
			cells := []string{row}
			for _, v := range b.variants {
				cells = append(cells, cell(s, b.keys[row+"\n"+v], b.unit))
			}
			t.Rows = append(t.Rows, cells)
		}
		tables = append(tables, t)
	}
	return tables
}

// Label returns the name of a row within its scenario.
func Label(k table.Key) string {
	words := []string{k.What}
	if k.What == k.Scenario && len(k.Params) > 0 {
		words = nil
	}
	names := strings.Split(k.Params.String(), "/")
	for _, n := range names {
		if _, v, ok := strings.Cut(n, "="); ok {
			if len(names) > 1 {
				v = n
			}
			words = append(words, v)
		}
	}
	if k.Placement != "" {
		words = append(words, k.Placement)
	}
	return strings.Join(words, " ")
}

func cell(s *table.Set, k table.Key, unit string) string {
	m, ok := s.Median(k, unit)
	if !ok {
		return "-"
	}
	text := table.Number(m)
	if r, ok := s.Ratio(k, table.Base, unit); ok && k.Variant != table.Base {
		text += fmt.Sprintf(" (%.2f)", r)
	}
	return text
}

// Text prints a table. It places columns that do not fit below the others.
func Text(w io.Writer, t Table) {
	from := 1
	for from < len(t.Head) || from == 1 {
		to := len(t.Head)
		for to > from+1 && width(t, from, to) > Width {
			to--
		}
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			fmt.Fprintln(tw, strings.Join(append([]string{row[0]}, row[from:min(to, len(row))]...), "\t"))
		}
		_ = tw.Flush() // writes to a terminal or a buffer
		from = to
	}
	if t.Note != "" {
		fmt.Fprintln(w, t.Note)
	}
}

// width returns the width of the first column and a range of other columns.
func width(t Table, from, to int) int {
	sum := 0
	for c := range t.Head {
		if c != 0 && (c < from || c >= to) {
			continue
		}
		wide := 0
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			if c < len(row) {
				wide = max(wide, len([]rune(row[c])))
			}
		}
		sum += wide + 2
	}
	return sum - 2
}
