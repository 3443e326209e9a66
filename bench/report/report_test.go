// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/bench/table"
)

func key(placement, variant string) table.Key {
	return table.Key{Scenario: "bulk", What: "bulk", Params: table.Params{"dir": "send"}, Placement: placement, Variant: variant}
}

func example() *table.Set {
	s := table.New()
	s.Info = table.Info{Date: "2026-01-02T03:04:05Z", Form: "full", Commit: "abc", Kernel: "Linux 6.18", CPU: "a CPU", CPUs: 2, Seconds: map[string]float64{"bulk": 3}}
	s.Notes = []string{"cycles: no counters"}
	for i, v := range []string{"host", "library"} {
		s.Add(key("one-cpu", v), table.Sample{"Gbit/s": 10 + 5*float64(i)})
		s.Add(key("two-cpus", v), table.Sample{"Gbit/s": 10 + 9*float64(i)})
	}
	return s
}

func targets() []table.Target {
	var ts []table.Target
	for _, p := range []string{"unpinned", "one-cpu", "two-cpus"} {
		ts = append(ts, table.Target{Criterion: "1", What: "library, send", Unit: "Gbit/s", Of: key(p, "library"), Base: key(p, "host"), AtLeast: 1.8})
	}
	return ts
}

func TestMarkdown(t *testing.T) {
	sec := Section{Name: "bulk", Title: "Bulk transfer", Seed: "002", About: "What it is.", Targets: targets(), Plots: []Plot{Figure{Name: "bulk-x", Title: "picture"}},
		Tables: []Table{{Title: "more", Head: []string{"a|b", "c"}, Rows: [][]string{{"1", "2"}}, Note: "a note"}}}
	for _, tt := range []struct {
		reasons string
		want    []string
	}{
		{"# top\n\n## 1: library, send\n\nCopies: three.\n\n## 2: other\n\nNot this.\n", []string{
			"a CPU with 2 CPUs", "Linux 6.18", "commit abc", "2026-01-02", "form full",
			"| 1 | library, send | ≥ 1.80 × host | ? | **1.50 missed** | 1.90 |", "**1: library, send, ≥ 1.80 × host** (one-cpu)\n\nCopies: three.\n",
			"- `cycles: no counters`", "## Bulk transfer", "Seeds 002. What it is.", "![picture](benchmarks/bulk-x.svg)",
			"| send one-cpu | 10.0 | 15.0 (1.50) |", "| a\\|b | c |", "a note", "bulk 3.",
			"| 1 | library, send | one-cpu | ≥ 1.80 × host | 1.50 | - | - | - |", "## Measured since\n\nA later figure.\n"}},
		{"", []string{"(one-cpu)\n\nNo reason is recorded yet."}},
	} {
		var b bytes.Buffer
		if err := Markdown(&b, example(), []Section{sec, {Name: "rr", Title: "Round trips"}}, tt.reasons, "# Top\n\nA later figure.\n"); err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is missing from\n%s", want, b.String())
			}
		}
		if strings.Contains(b.String(), "Not this") {
			t.Error("another target's reason is there")
		}
	}
}

// TestBounds checks where a bound comes from: an experiment, the library in the same run,
// or nothing.
func TestBounds(t *testing.T) {
	s := example()
	for _, p := range []string{"one-cpu", "two-cpus"} {
		s.Add(key(p, "supervise"), table.Sample{"Gbit/s": 6, "cpu-s/GB": 0.4})
		s.Add(key(p, "library"), table.Sample{"cpu-s/GB": 0.3})
		s.Add(key(p, "host"), table.Sample{"cpu-s/GB": 0.2})
	}
	target := func(what, unit, placement, of, base string, atLeast, atMost float64) table.Target {
		return table.Target{Criterion: "1", What: what, Unit: unit, Of: key(placement, of), Base: key(placement, base), AtLeast: atLeast, AtMost: atMost}
	}
	got := bounds(s, Demands(s, []table.Target{
		target("library, send, cc=cubic", "Gbit/s", "one-cpu", "library", "host", 2, 0), // 1.50, but 0.91 in the experiment
		target("supervise, send", "Gbit/s", "one-cpu", "supervise", "host", 0.8, 0),     // the library: 1.50
		target("preload, send", "Gbit/s", "two-cpus", "supervise", "library", 0.95, 0),
		target("supervise, CPU", "cpu-s/GB", "one-cpu", "supervise", "host", 0, 1.2),
		target("library, other", "Gbit/s", "one-cpu", "library", "host", 1.8, 0),
		target("supervise, met", "Gbit/s", "one-cpu", "supervise", "host", 0.1, 0),
	}))
	var rows []string
	for _, r := range got.Rows {
		rows = append(rows, strings.Join(r[4:7], " "))
	}
	want := []string{"1.50 1.08 0.84", "0.60 1.50 0.40", "0.32 1.00 0.32", "2.00 1.50 0.75", "1.50 - -"}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", rows, want)
	}
}

// TestProfiles checks that both sides of a missed target appear once, side by side, and
// that small rows are joined.
func TestProfiles(t *testing.T) {
	s := example()
	for i, v := range []string{"host", "library"} {
		s.Profiles = append(s.Profiles, table.Profile{Key: key("one-cpu", v), Unit: "cpu-s/GB", Sample: table.Sample{"Gbit/s": 10, "cpu-s/GB": 0.2}, Idle: 0.25, Busiest: "prog", Busy: 0.9,
			Parts: []table.Part{{Name: "copy", Value: 0.15 + float64(i)}, {Name: "small", Value: 0.001}, {Name: "other", Value: 0.049}}})
	}
	s.Profiles[1].Parts = append([]table.Part{{Name: "first", Value: 0.1}}, s.Profiles[1].Parts...)
	again := targets()
	for i := range again {
		again[i].What = "again"
	}
	var b bytes.Buffer
	if err := Markdown(&b, s, []Section{{Name: "bulk", Targets: append(targets(), again...)}}, "", ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| CPU time, ms/GB | one-cpu host | one-cpu library |\n| --- | ---: | ---: |\n| first |  | 100 |\n| copy | 150 | 1150 |\n| other | 50 | 50 |\n| **all** | **200** | **1300** |\n" +
			"| nothing to do | 25 % | 25 % |\n| busiest thread | 90 % prog | 90 % prog |\n| Gbit/s | 10.0 | 10.0 |\n",
		"\nProfile: see 1, library, send.\n",
	} {
		if strings.Count(b.String(), want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, b.String())
		}
	}
}

func TestReasons(t *testing.T) {
	if !strings.HasPrefix(Reasons, "# ") {
		t.Errorf("reasons.md begins with %.20q", Reasons)
	}
}

func TestTextFits(t *testing.T) {
	wide := Table{Head: []string{"Gbit/s"}, Rows: [][]string{{"dir=send size=65536 one-cpu"}}}
	for range 7 {
		wide.Head, wide.Rows[0] = append(wide.Head, "host+mptcp"), append(wide.Rows[0], "12.3 (1.23)")
	}
	var b bytes.Buffer
	Text(&b, wide)
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > Width {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if got := strings.Count(b.String(), "12.3 (1.23)"); got != 7 {
		t.Errorf("%d cells of 7:\n%s", got, b.String())
	}
}

func TestSVG(t *testing.T) {
	nan := math.NaN()
	for _, p := range []Plot{
		Figure{Name: "a", Title: "lines", X: "n", Y: "s", LogX: true, LogY: true, Lines: []Line{
			{Name: "host", X: []float64{0, 1, 10}, Y: []float64{1, 2, 3}, Low: []float64{1, 1, 2}, High: []float64{1, 3, 4}}, {Name: "empty"}}},
		Figure{Name: "b", Title: "one point", Lines: []Line{{Name: "host", X: []float64{5}, Y: []float64{5}}}},
		Figure{Name: "c", Title: "nothing", LogX: true},
		Bars{Name: "d", Title: "bars & more", Y: "Gbit/s", Groups: []string{"x", "y"}, Series: []Series{
			{Name: "host", Values: []float64{1, nan}, Low: []float64{0.5, nan}, High: []float64{2, nan}}, {Name: "gone", Values: []float64{nan, nan}}}},
		Bars{Name: "e", Title: "no bars", Groups: []string{"x"}},
	} {
		var b bytes.Buffer
		if err := WriteSVG(&b, p); err != nil {
			t.Errorf("%s: %v", p.FileName(), err)
			continue
		}
		text := b.String()
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: numbers that are none", p.FileName())
		}
		d := xml.NewDecoder(&b)
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", p.FileName(), err)
			}
		}
	}
}
