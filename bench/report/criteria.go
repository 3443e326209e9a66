// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/bench/table"
)

// Reasons contains the explanations of missed targets. Each has a heading "## CRITERION:
// WHAT", followed by the profile and the reason.
//
//go:embed reasons.md
var Reasons string

// Since contains figures that were measured after the run of the page, by other commands.
// The page copies the text below its first heading.
//
//go:embed since.md
var Since string

// A Demand is one line of the criteria: a target in each placement.
type Demand struct {
	Target  table.Target // target for the first placement
	Results []Result
}

// A Result is a target's result in one placement.
type Result struct {
	Placement, Verdict string
	Figure             float64
	target             table.Target // target for this placement
}

// Demands judges the targets, and joins those that differ only in their placement.
func Demands(s *table.Set, targets []table.Target) []Demand {
	var ds []Demand
	for _, t := range targets {
		figure, verdict := s.Judge(t)
		at := slices.IndexFunc(ds, func(d Demand) bool {
			return d.Target.Criterion == t.Criterion && d.Target.What == t.What && d.Target.Unit == t.Unit && d.Target.Bound() == t.Bound()
		})
		if at < 0 {
			at = len(ds)
			ds = append(ds, Demand{Target: t})
		}
		ds[at].Results = append(ds[at].Results, Result{t.Of.Placement, verdict, figure, t})
	}
	slices.SortStableFunc(ds, func(a, b Demand) int { return strings.Compare(a.Target.Criterion, b.Target.Criterion) })
	return ds
}

// Missed lists the placements in which a demand is missed.
func (d Demand) Missed() []string {
	var ps []string
	for _, t := range d.misses() {
		ps = append(ps, t.Of.Placement)
	}
	return ps
}

// misses returns the demand's missed targets.
func (d Demand) misses() []table.Target {
	var ts []table.Target
	for _, r := range d.Results {
		if r.Verdict == table.Missed {
			ts = append(ts, r.target)
		}
	}
	return ts
}

// Reason returns the demand's explanation from reasons, or "" if there is none.
func (d Demand) Reason(reasons string) string {
	_, rest, ok := strings.Cut("\n"+reasons, "\n## "+d.Target.Criterion+": "+d.Target.What+"\n")
	if !ok {
		return ""
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return strings.TrimSpace(text)
}

// criteria returns the table of all demands. The function bad marks figures that
// miss their target.
func criteria(ds []Demand, bad func(string) string) Table {
	placements := []string{unpinned, oneCPU, twoCPUs}
	t := Table{Title: "Criteria", Head: append([]string{"", "what", "target"}, placements...)}
	for _, d := range ds {
		row := []string{d.Target.Criterion, d.Target.What, d.Target.Bound(), "", "", ""}
		for _, r := range d.Results {
			at := max(slices.Index(placements, r.Placement), 0)
			cell := table.Number(r.Figure)
			switch r.Verdict {
			case table.Missed:
				cell = bad(cell)
			case table.Unknown:
				cell = "?"
			}
			row[3+at] = cell
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Criteria returns the table of all demands for a terminal.
func Criteria(s *table.Set, targets []table.Target) Table {
	t := criteria(Demands(s, targets), func(c string) string { return c + " !" })
	t.Title, t.Head[1] = "", "criterion"
	for i, row := range t.Rows {
		t.Rows[i] = append([]string{row[0] + " " + row[1]}, row[2:]...)
	}
	t.Head = append([]string{"criterion"}, t.Head[2:]...)
	t.Note = "!: missed, ?: not measured"
	return t
}
