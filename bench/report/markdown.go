// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/bench/table"
)

// A Section is a scenario on the page.
type Section struct {
	Name, Title, Seed, About string
	Targets                  []table.Target
	Tables                   []Table
	Plots                    []Plot
}

// Pictures is the directory of the plots, beside the page.
const Pictures = "benchmarks"

// Markdown writes the page: the set-up, the demands and whether they are met,
// explanations of missed ones, and a section for each scenario.
func Markdown(w io.Writer, s *table.Set, sections []Section, reasons string) error {
	var b strings.Builder
	i := s.Info
	b.WriteString("# Benchmarks\n\nWritten by `make bench-full`, but for the reasons (bench/report/reasons.md): change the scenario, not this page.\n\n")
	fmt.Fprintf(&b, "Measured on %s with %d CPUs and %s of memory, %s, %s, commit %s, %s, form %s.\n", orUnknown(i.CPU), i.CPUs, orUnknown(i.Memory), orUnknown(i.System), orUnknown(i.Kernel), orUnknown(i.Commit), day(i.Date), i.Form)
	if len(i.Commits) > 0 {
		b.WriteString("Scenarios that say so are of an earlier run on this machine.\n")
	}
	fmt.Fprintf(&b, "CPU time is from %s. All variants of a scenario were measured in turns; medians, in brackets the ratio to the host's, bars in pictures from quartile to quartile.\n\n", orUnknown(i.CPUTime))
	b.WriteString("`host` is the program on the host's kernel, `host+mptcp` on its MPTCP, `library` liblkl.so in the measuring process, `preload` and `supervise` the unmodified program under lklrun's engines, " +
		"`lkl-4.9` the old library. `unpinned` is where the scheduler will, `one-cpu` all on CPU 0, `two-cpus` the measured side on CPU 0 and its peer on CPU 1.\n")
	var targets []table.Target
	for _, sec := range sections {
		targets = append(targets, sec.Targets...)
	}
	ds := Demands(s, targets)
	b.WriteString("\n## What is demanded\n\n")
	markdownTable(&b, criteria(ds, func(c string) string { return "**" + c + " missed**" }))
	b.WriteString("\nBold: missed; ?: not measured in this run. Placements that nothing is demanded of are empty; the first column also holds what has no placement.\n")
	missed(&b, s, ds, reasons)
	if len(s.Notes) > 0 {
		b.WriteString("\n## What could not be measured\n\n")
		for _, n := range s.Notes {
			fmt.Fprintf(&b, "* %s\n", n)
		}
	}
	for _, sec := range sections {
		section(&b, s, sec)
	}
	b.WriteString("\n## The run\n\nSeconds of each scenario: ")
	for k, name := range slices.Sorted(maps.Keys(i.Seconds)) {
		if k > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %.0f", name, i.Seconds[name])
	}
	b.WriteString(".\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func missed(b *strings.Builder, s *table.Set, ds []Demand, reasons string) {
	first, shown := true, map[string]string{}
	for _, d := range ds {
		places := d.Missed()
		if len(places) == 0 {
			continue
		}
		if first {
			b.WriteString("\n## What is missed, and why\n")
			if len(s.Profiles) > 0 {
				b.WriteString("\n" + aboutProfiles)
			}
			first = false
		}
		where := strings.Trim(strings.Join(places, ", "), ", ")
		if where != "" {
			where = " (" + where + ")"
		}
		reason := d.Reason(reasons)
		if reason == "" {
			reason = "No reason has been written of it yet."
		}
		fmt.Fprintf(b, "\n**%s, %s, %s**%s: %s\n", d.Target.Criterion, d.Target.What, d.Target.Bound(), where, reason)
		ps, above := profilesOf(s, d, shown)
		if len(above) > 0 {
			fmt.Fprintf(b, "\nProfile: see %s.\n", strings.Join(above, "; "))
		}
		if len(ps) > 0 {
			b.WriteByte('\n')
			markdownTable(b, profileTable(ps))
		}
	}
}

func section(b *strings.Builder, s *table.Set, sec Section) {
	fmt.Fprintf(b, "\n## %s\n\n", sec.Title)
	if sec.Seed != "" {
		fmt.Fprintf(b, "Seeds %s. ", sec.Seed)
	}
	fmt.Fprintf(b, "%s", sec.About)
	if n := s.Turns(sec.Name); n > 1 {
		fmt.Fprintf(b, " Up to %d turns.", n)
	}
	if c := s.Info.Commits[sec.Name]; c != "" {
		fmt.Fprintf(b, " Measured before, at commit %s.", c)
	}
	b.WriteByte('\n')
	if len(s.Keys(sec.Name)) == 0 {
		b.WriteString("\nNot measured in this run.\n")
		return
	}
	for _, p := range sec.Plots {
		fmt.Fprintf(b, "\n![%s](%s/%s.svg)\n", p.Caption(), Pictures, p.FileName())
	}
	for _, t := range append(Default(s, sec.Name), sec.Tables...) {
		b.WriteByte('\n')
		if t.Title != "" && t.Title != t.Head[0] {
			fmt.Fprintf(b, "%s:\n\n", t.Title)
		}
		markdownTable(b, t)
		if t.Note != "" {
			fmt.Fprintf(b, "\n%s\n", t.Note)
		}
	}
}

// markdownTable writes a table with right-aligned numbers.
func markdownTable(b *strings.Builder, t Table) {
	line := func(cells []string) {
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", "\\|")
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	line(slices.Clone(t.Head))
	rule := make([]string, len(t.Head))
	for i := range rule {
		rule[i] = "---:"
		if i == 0 || t.Head[i] == "what" || t.Head[i] == "demanded" {
			rule[i] = "---"
		}
	}
	line(rule)
	for _, row := range t.Rows {
		line(slices.Clone(row))
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// day is the date part of an RFC 3339 time.
func day(date string) string {
	d, _, _ := strings.Cut(date, "T")
	return orUnknown(d)
}
