// SPDX-License-Identifier: Apache-2.0

// Package scenario holds what is measured, a file for each.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

// A Scenario is one table: its wires and servers, and who is measured on them.
type Scenario struct {
	Order   int // the place in a run and in the report
	Name    string
	Title   string
	Seed    string // whose table it is: the first digits of the file in the seeds
	About   string // what is measured and how: a paragraph of Markdown
	Quick   bool   // part of the quick form
	Budget  Budget
	Build   func(ctx context.Context, l *lab.Lab) ([]Measure, error)
	Targets []table.Target
	Tables  func(*table.Set) []report.Table // beside the one that every scenario has
	Figures func(*table.Set) []report.Plot
}

// A Budget is how long a scenario may take.
type Budget struct{ Quick, Full time.Duration }

// A Measure is one row and variant, measured again in each round.
type Measure struct {
	Key    table.Key // its scenario is filled in
	Take   func(context.Context) (table.Sample, error)
	Once   bool // takes minutes: in the first round only
	Rounds int  // fewer than the form's; 0: the form's
	Times  int  // so many times the form's rounds; 0: once
}

// Turns is in how many rounds it is measured, of a form with so many.
func (m Measure) Turns(rounds int) int {
	if m.Once {
		return 1
	}
	rounds *= max(m.Times, 1)
	if m.Rounds > 0 {
		rounds = min(rounds, m.Rounds)
	}
	return rounds
}

// ErrSkip is wrapped by an error of a Take or a Build that says why something
// cannot be measured here.
var ErrSkip = errors.New("not measured")

var all []Scenario

func register(s Scenario) {
	all = append(all, s)
}

// All are the scenarios in their order.
func All() []Scenario {
	return slices.SortedStableFunc(slices.Values(all), func(a, b Scenario) int { return cmp.Compare(a.Order, b.Order) })
}
