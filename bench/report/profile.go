// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/bench/table"
)

// aboutProfiles is the text before the first profile.
const aboutProfiles = "The table below a missed target shows where the CPU time went in one more turn, under `perf record -e cpu-clock` of both CPUs. " +
	"It has a column for the variant and one for the variant of comparison. Figures are milliseconds of all processes for each GB, or µs for each round trip or connection.\n\n" +
	"- A sample counts for the innermost function that has a row. The host's receive path inside a write to a tap therefore has its own row.\n" +
	"- `other` contains the rows below 2 % in all columns.\n" +
	"- `nothing to do` is the unused time of both CPUs. `busiest thread` is the share of one CPU that this thread used.\n" +
	"- The last lines are the figures of this one turn, which differ from the medians above.\n"

// minor is the share of a column below which a row is omitted.
const minor = 0.02

const otherRow = "other"

// scale returns the unit in which a profile shows CPU time, and the factor for the
// conversion.
func scale(unit string) (shown string, factor float64) {
	if unit == "cpu-s/GB" {
		return "ms/GB", 1e3
	}
	return strings.TrimPrefix(unit, "cpu-"), 1
}

// A columned is a profile with the heading of the column that shows it.
type columned struct {
	head string
	*table.Profile
}

// profilesOf returns the profiles of a missed demand, in pairs, without those
// already in shown.
func profilesOf(s *table.Set, d Demand, shown map[string]string) (ps []columned, above []string) {
	for _, t := range d.misses() {
		pair := []table.Key{t.Base, t.Of}
		name := t.Of.String() + " " + t.Base.String()
		if at, ok := shown[name]; ok {
			if !slices.Contains(above, at) {
				above = append(above, at)
			}
			continue
		}
		for _, k := range pair {
			if p := s.Profile(k); p != nil {
				ps = append(ps, columned{column(t, k), p})
				shown[name] = d.Target.Criterion + ", " + d.Target.What
			}
		}
	}
	return ps, above
}

// column returns the heading of a key's column: its placement and variant, or any
// other property that distinguishes the two sides of a target.
func column(t table.Target, k table.Key) string {
	words := []string{k.Placement, k.Variant}
	if t.Of.Variant == t.Base.Variant {
		words = append(words, k.Params.String())
	}
	return strings.Join(words, " ")
}

// profileTable shows profiles side by side, all in the unit of the first.
func profileTable(ps []columned) Table {
	unit, factor := scale(ps[0].Unit)
	t := Table{Head: []string{"CPU time, " + unit}}
	sums := make([]float64, len(ps))
	for i, p := range ps {
		t.Head = append(t.Head, p.head)
		for _, part := range p.Parts {
			sums[i] += part.Value
		}
	}
	rest := make([]float64, len(ps))
	for _, name := range partNames(ps) {
		row, big := []string{name}, false
		values := make([]float64, len(ps))
		for i, p := range ps {
			values[i] = p.Part(name)
			big = big || values[i] >= minor*sums[i]
			row = append(row, short(values[i]*factor))
		}
		if big && name != otherRow {
			t.Rows = append(t.Rows, row)
			continue
		}
		for i, v := range values {
			rest[i] += v
		}
	}
	lines := []struct {
		name  string
		value func(i int) string
	}{
		{otherRow, func(i int) string { return short(rest[i] * factor) }},
		{"**all**", func(i int) string { return "**" + short(sums[i]*factor) + "**" }},
		{"nothing to do", func(i int) string { return fmt.Sprintf("%.0f %%", 100*ps[i].Idle) }},
		{"busiest thread", func(i int) string { return fmt.Sprintf("%.0f %% %s", 100*ps[i].Busy, ps[i].Busiest) }},
	}
	for _, u := range []string{"Gbit/s", "µs", "1/s", "µs-p99"} {
		if _, ok := ps[0].Sample[u]; ok {
			lines = append(lines, struct {
				name  string
				value func(i int) string
			}{u, func(i int) string { return table.Number(ps[i].Sample[u]) }})
		}
	}
	for _, l := range lines {
		row := []string{l.name}
		for i := range ps {
			row = append(row, l.value(i))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// partNames returns the names of the parts in all profiles, in order.
func partNames(ps []columned) []string {
	var names []string
	for _, p := range ps {
		at := 0
		for _, part := range p.Parts {
			if i := slices.Index(names, part.Name); i >= 0 {
				at = i + 1
				continue
			}
			names = slices.Insert(names, at, part.Name)
			at++
		}
	}
	return names
}

// short formats a part's time with the precision of the samples.
func short(v float64) string {
	switch {
	case v == 0:
		return ""
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
