// SPDX-License-Identifier: Apache-2.0

// Package scenario contains the scenarios, a file for each.
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

// A Scenario is one table, with its wires, servers and variants.
type Scenario struct {
	Order   int // position in a run and in the report
	Name    string
	Title   string
	Seed    string // source of the table: the leading digits of the file name in the seeds
	About   string // what is measured and how: a paragraph of Markdown
	Quick   bool   // part of the quick form
	Budget  Budget
	Build   func(ctx context.Context, l *lab.Lab) ([]Measure, error)
	Targets []table.Target
	Tables  func(*table.Set) []report.Table // tables in addition to the default ones
	Figures func(*table.Set) []report.Plot
}

// A Budget is the time limit of a scenario.
type Budget struct{ Quick, Full time.Duration }

// A Measure measures one variant of one row. It runs once in each round.
type Measure struct {
	Key    table.Key // the scenario is set before the measurement
	Take   func(context.Context) (table.Sample, error)
	Once   bool // takes minutes, so it runs only in the first round
	Rounds int  // fewer rounds than the form's; 0: the form's
	Times  int  // multiple of the form's rounds; 0: once
}

// Turns returns the number of turns of the measure, in a form with the given number of
// rounds.
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

// ErrSkip is wrapped by errors of Take and Build that explain why this machine cannot
// run a measurement.
var ErrSkip = errors.New("not measured")

var all []Scenario

func register(s Scenario) {
	all = append(all, s)
}

// All returns the scenarios in order.
func All() []Scenario {
	return slices.SortedStableFunc(slices.Values(all), func(a, b Scenario) int { return cmp.Compare(a.Order, b.Order) })
}
