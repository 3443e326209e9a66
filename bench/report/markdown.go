// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/bench/table"
)

// A Section describes one scenario on the page.
type Section struct {
	Name, Title, Seed, About string
	Targets                  []table.Target
	Tables                   []Table
	Plots                    []Plot
}

// Pictures is the directory of the plots. It is in the directory of the page.
const Pictures = "benchmarks"

// Markdown writes the page: the set-up, the demands and whether they are met,
// explanations of missed ones with their bounds, later figures, and one section for each
// scenario.
func Markdown(w io.Writer, s *table.Set, sections []Section, reasons, since string) error {
	var b strings.Builder
	i := s.Info
	b.WriteString("# Benchmarks\n\nWritten by `make bench-full`. To change the text, edit the scenario, or bench/report/reasons.md for the reasons.\n\n")
	fmt.Fprintf(&b, "Measured on %s with %d CPUs and %s of memory, %s, %s, commit %s, %s, form %s.\n", orUnknown(i.CPU), i.CPUs, orUnknown(i.Memory), orUnknown(i.System), orUnknown(i.Kernel), orUnknown(i.Commit), day(i.Date), i.Form)
	if len(i.Commits) > 0 {
		b.WriteString("Some scenarios are marked as measured in an earlier run on this machine.\n")
	}
	fmt.Fprintf(&b, "CPU time is from %s. All variants of a scenario were measured in interleaved turns. Figures are medians, with the ratio to the host's in brackets. Bars in pictures range from quartile to quartile.\n\n", orUnknown(i.CPUTime))
	b.WriteString("Variants: `host` is the program on the host's kernel, `host+mptcp` uses that kernel's MPTCP, and `library` is liblkl.so in the measuring process. " +
		"`preload` and `supervise` are the unmodified program under lklrun's engines. `lkl-4.9` is the old library.\n\n" +
		"Placements: `unpinned` leaves the choice to the scheduler, `one-cpu` is all on CPU 0, and `two-cpus` is the measured side on CPU 0 and its peer on CPU 1.\n")
	var targets []table.Target
	for _, sec := range sections {
		targets = append(targets, sec.Targets...)
	}
	ds := Demands(s, targets)
	head := b.String()
	b.Reset()
	b.WriteString("\n## Targets\n\n")
	markdownTable(&b, criteria(ds, func(c string) string { return "**" + c + " missed**" }))
	b.WriteString("\nBold: missed. ?: not measured in this run. A placement without a target is empty. The first column also shows figures that have no placement.\n")
	if t := bounds(s, ds); len(t.Rows) > 0 {
		b.WriteString("\n## Missed targets against their bounds\n\n" + aboutBounds + "\n")
		markdownTable(&b, t)
	}
	missed(&b, s, ds, reasons)
	if _, text, ok := strings.Cut(since, "\n\n"); ok {
		b.WriteString("\n## Measured since\n\n" + strings.TrimSpace(text) + "\n")
	}
	if len(s.Notes) > 0 {
		b.WriteString("\n## Not measured\n\n")
		for _, n := range s.Notes {
			fmt.Fprintf(&b, "- `%s`\n", strings.ReplaceAll(strings.TrimSpace(n), "`", "'"))
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
	_, err := io.WriteString(w, wrap(head+"\n"+contents(b.String())+b.String()))
	return err
}

// contents lists the headings of a text, with links in GitHub's form.
func contents(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			anchor := noAnchor.ReplaceAllString(strings.ToLower(title), "")
			fmt.Fprintf(&b, "- [%s](#%s)\n", title, strings.ReplaceAll(anchor, " ", "-"))
		}
	}
	return b.String()
}

var noAnchor = regexp.MustCompile(`[^\pL\pN_ -]`)

func missed(b *strings.Builder, s *table.Set, ds []Demand, reasons string) {
	first, shown := true, map[string]string{}
	for _, d := range ds {
		places := d.Missed()
		if len(places) == 0 {
			continue
		}
		if first {
			b.WriteString("\n## Missed targets\n")
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
			reason = "No reason is recorded yet."
		}
		fmt.Fprintf(b, "\n**%s: %s, %s**%s\n\n%s\n", d.Target.Criterion, d.Target.What, d.Target.Bound(), where, reason)
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

// words are the headings of columns that contain words instead of numbers.
var words = []string{"what", "target", "placement", "source"}

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
		if i == 0 || slices.Contains(words, t.Head[i]) {
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

// day returns the date of an RFC 3339 time.
func day(date string) string {
	d, _, _ := strings.Cut(date, "T")
	return orUnknown(d)
}
