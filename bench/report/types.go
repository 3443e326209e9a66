// SPDX-License-Identifier: Apache-2.0

// Package report writes the results of a run for people: tables for a terminal, and a
// documentation page with plots. Its caller passes all data.
package report

import (
	"math"

	"github.com/lklrun/lklrun/bench/table"
)

// A Plot is a picture: a Figure or Bars.
type Plot interface {
	// FileName returns the file's name without directory and suffix.
	FileName() string
	// Caption describes the picture.
	Caption() string
}

// A Line is one curve; Low and High are the spread at each X. They may be empty.
type Line struct {
	Name      string
	X, Y      []float64
	Low, High []float64
}

// A Figure is a set of curves with a common axis.
type Figure struct {
	Name, Title, X, Y string
	LogX, LogY        bool
	Lines             []Line
}

// FileName implements Plot.
func (f Figure) FileName() string { return f.Name }

// Caption implements Plot.
func (f Figure) Caption() string { return f.Title }

// A Series is one colour of Bars: a value for each group, NaN if there is none.
type Series struct {
	Name              string
	Values, Low, High []float64
}

// Bars are groups of bars side by side.
type Bars struct {
	Name, Title, Y string
	Groups         []string
	Series         []Series
}

// FileName implements Plot.
func (b Bars) FileName() string { return b.Name }

// Caption implements Plot.
func (b Bars) Caption() string { return b.Title }

// A Table is a table with any rows and columns.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
	Note  string
}

// Add appends a key's median with its quartiles, or a gap if the key was not
// measured.
func (s *Series) Add(set *table.Set, k table.Key, unit string) {
	m, ok := set.Median(k, unit)
	lo, hi := set.Quartiles(k, unit)
	if !ok {
		m, lo, hi = math.NaN(), math.NaN(), math.NaN()
	}
	s.Values, s.Low, s.High = append(s.Values, m), append(s.Low, lo), append(s.High, hi)
}

// Add appends a key's median at x with its quartiles, if there is one.
func (l *Line) Add(set *table.Set, x float64, k table.Key, unit string) {
	if m, ok := set.Median(k, unit); ok {
		lo, hi := set.Quartiles(k, unit)
		l.X, l.Y, l.Low, l.High = append(l.X, x), append(l.Y, m), append(l.Low, lo), append(l.High, hi)
	}
}
