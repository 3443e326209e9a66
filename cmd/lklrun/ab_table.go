// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/run/ab"
)

// headings lists the metrics in the order of the table. Each has its heading and
// the function that formats its values.
var headings = []struct {
	metric, name string
	number       func(float64) string
}{
	{"time_s", "TIME", seconds},
	{"cpu_s", "CPU TIME", seconds},
	{"bytes_received", "RECEIVED", quantity},
	{"bytes_sent", "SENT", quantity},
	{"retrans", "RETRANS", plain},
}

// writeComparison prints a comparison: a section per metric, a line per variant, and the
// failed runs.
func writeComparison(w io.Writer, c *ab.Comparison) error {
	var b strings.Builder
	t := cli.NewTable("", "", ">N", ">MEDIAN", ">QUARTILES", ">EXTREMES", ">RATIO", ">P", "").Narrow()
	rows := 0
	for _, h := range headings {
		title := h.name
		for i := range c.Variants {
			m := c.Variants[i].Metric(h.metric)
			if m == nil {
				continue
			}
			ratio, p, verdict := "", "", " "
			if m.Ratio != nil {
				ratio = fmt.Sprintf("%.3f", *m.Ratio)
			}
			switch {
			case i == 0:
				ratio = "1"
			case m.TooFew:
				verdict = "too few runs"
			case m.P != nil:
				p = fmt.Sprintf("%.3f", *m.P)
				verdict = map[bool]string{true: "differs", false: "chance"}[m.Differ]
			}
			t.Row(title, c.Variants[i].Name, fmt.Sprint(m.N), h.number(m.Median), h.number(m.Low)+"-"+h.number(m.High), h.number(m.Min)+"-"+h.number(m.Max), ratio, p, verdict)
			title = " "
			rows++
		}
	}
	if rows > 0 {
		if err := t.Write(&b); err != nil {
			return err
		}
	}
	if len(c.Sources) > 0 {
		if err := writeSources(&b, c); err != nil {
			return err
		}
	}
	for i := range c.Variants {
		v := &c.Variants[i]
		if n := v.Failed(); n > 0 {
			fmt.Fprintf(&b, "\n%s: %d failed\n", v.Name, n)
		}
		for _, r := range v.Runs {
			if r.Failed {
				lines := strings.Split(r.Words, "\n")
				of := ""
				if r.Source != "" {
					of = " of " + r.Source
				}
				fmt.Fprintf(&b, "  run %d%s: status %d: %s\n", r.Number, of, r.Status, lines[len(lines)-1])
			}
		}
	}
	if c.Stopped {
		fmt.Fprintf(&b, "\ninterrupted: fewer than %d runs per variant\n", c.Rounds)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeSources prints the ratios of the times in each source of a merged comparison. A
// source that disagrees with the others is thus visible.
func writeSources(b *strings.Builder, c *ab.Comparison) error {
	columns := []string{"RATIO OF TIME IN"}
	for i := range c.Variants[1:] {
		columns = append(columns, ">"+c.Variants[i+1].Name)
	}
	t := cli.NewTable(columns...).Narrow()
	for _, s := range c.Sources {
		cells := []string{s.Name}
		for i := range c.Variants[1:] {
			cell := ""
			if ratio, ok := s.Ratios[c.Variants[i+1].Name]; ok {
				cell = fmt.Sprintf("%.3f", ratio)
			}
			cells = append(cells, cell)
		}
		t.Row(cells...)
	}
	b.WriteString("\n")
	return t.Write(b)
}

func seconds(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) + "s" }
func plain(v float64) string   { return strconv.FormatFloat(v, 'f', -1, 64) }

// quantity formats bytes with three digits and a decimal prefix.
func quantity(v float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if v < 999.5 {
			return strconv.FormatFloat(v, 'g', 3, 64) + unit
		}
		v /= 1000
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + "TB"
}
