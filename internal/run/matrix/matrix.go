// SPDX-License-Identifier: Apache-2.0

// Package matrix runs a topology file with each combination of values of its variables,
// such as each pair of stacks, and collects the results that its steps report.
package matrix

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lklrun/lklrun/pkg/lab"
)

// MaxRuns limits the number of runs.
const MaxRuns = 10000

// Matrix is a scenario with its combinations.
type Matrix struct {
	Scenario string    `json:"scenario"` // file
	Started  time.Time `json:"started"`
	OK       bool      `json:"ok"`      // all runs succeeded
	Stopped  bool      `json:"stopped"` // interrupted, so runs are missing
	Vars     []Var     `json:"vars"`    // variables that the caller gave; the last one changes fastest
	Results  []string  `json:"results"` // names of the results
	Cells    []Cell    `json:"cells"`
}

// Var is a variable with its values.
type Var struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// Cell is one combination of values.
type Cell struct {
	Vars lab.Vars `json:"vars"`
	Runs []Run    `json:"runs"`
}

// Run is one run of a cell.
type Run struct {
	OK      bool              `json:"ok"`
	Seed    *uint64           `json:"seed,omitempty"` // in virtual time
	Error   string            `json:"error,omitempty"`
	Seconds float64           `json:"seconds"` // from the start of the lab to its end, in real time
	Values  map[string]string `json:"values"`
	Folder  string            `json:"folder,omitempty"` // output of the nodes and steps
}

// Expand makes the cells: all combinations of the values.
func (m *Matrix) Expand(runs int) error {
	total := runs
	for _, v := range m.Vars {
		if total *= len(v.Values); total > MaxRuns {
			return fmt.Errorf("more than %d runs; use fewer values", MaxRuns)
		}
	}
	m.Cells = []Cell{{Vars: lab.Vars{}}}
	for _, v := range m.Vars {
		var next []Cell
		for _, c := range m.Cells {
			for _, value := range v.Values {
				vars := maps.Clone(c.Vars)
				vars[v.Name] = value
				next = append(next, Cell{Vars: vars})
			}
		}
		m.Cells = next
	}
	for k := range m.Cells {
		m.Cells[k].Runs = []Run{}
	}
	return nil
}

// Varied returns the variables that distinguish the cells: those with several values. If
// there is only one cell, these are all variables.
func (m *Matrix) Varied() []Var {
	if len(m.Cells) < 2 {
		return m.Vars
	}
	return slices.DeleteFunc(slices.Clone(m.Vars), func(v Var) bool { return len(v.Values) < 2 })
}

// Name describes a cell in one line.
func (m *Matrix) Name(c *Cell) string {
	var words []string
	for _, v := range m.Varied() {
		words = append(words, v.Name+"="+c.Vars[v.Name])
	}
	return strings.Join(words, " ")
}

// Runner makes the run of this number, from 1, of a cell.
type Runner func(ctx context.Context, number int, c *Cell) Run

// Execute runs each cell this number of times, so many runs at a time. It calls done after
// each run. When ctx is done, it stops.
func (m *Matrix) Execute(ctx context.Context, runs, atOnce int, run Runner, done func(number, of int, c *Cell, r *Run)) {
	m.Started = time.Now()
	all := make([]*Run, runs*len(m.Cells)) // nil: interrupted
	var mu sync.Mutex
	ended := 0
	var g errgroup.Group
	g.SetLimit(atOnce)
	for n := range all {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			began, c := time.Now(), &m.Cells[n%len(m.Cells)]
			r := run(ctx, n+1, c)
			r.Seconds = time.Since(began).Seconds()
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil {
				all[n] = &r
				ended++
				done(ended, len(all), c, &r)
			}
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	m.OK = true
	for n, r := range all {
		if r == nil {
			m.Stopped, m.OK = true, false
			continue
		}
		c := &m.Cells[n%len(m.Cells)]
		c.Runs, m.OK = append(c.Runs, *r), m.OK && r.OK
	}
}

// Failed returns the number of failed runs.
func (c *Cell) Failed() (n int) {
	for _, r := range c.Runs {
		if !r.OK {
			n++
		}
	}
	return n
}

// Summary returns the result of this name: that of the only run, or the median of several
// runs with the extremes. Results that are not numbers are listed.
func (c *Cell) Summary(name string) string {
	var values []string
	for _, r := range c.Runs {
		if v := r.Values[name]; v != "" {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return ""
	}
	numbers := true
	for _, v := range values {
		_, unit, ok := number(v)
		_, first, _ := number(values[0])
		numbers = numbers && ok && unit == first
	}
	if !numbers {
		slices.Sort(values)
		return strings.Join(slices.Compact(values), ", ")
	}
	slices.SortFunc(values, func(a, b string) int {
		x, _, _ := number(a)
		y, _, _ := number(b)
		return cmp.Compare(x, y)
	})
	low, median, high := values[0], values[len(values)/2], values[len(values)-1]
	if below := values[(len(values)-1)/2]; below != median {
		x, _, _ := number(below)
		y, unit, _ := number(median)
		median = strconv.FormatFloat((x+y)/2, 'g', 6, 64) + unit
	}
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s-%s)", median, low, high)
}

// number splits a value such as 1.5Mbit/s.
func number(value string) (n float64, unit string, ok bool) {
	end := len(value) - len(strings.TrimLeft(value, "0123456789.-"))
	n, err := strconv.ParseFloat(value[:end], 64)
	return n, value[end:], err == nil
}
