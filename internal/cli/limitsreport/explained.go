// SPDX-License-Identifier: Apache-2.0

// Package limitsreport prints what limits the connections of a run.
package limitsreport

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/explain"
)

// columns is the width of paragraphs if the output is not a terminal.
const columns = 80

// othersMost is the largest number of further connections in a table.
const othersMost = 20

// Write explains the connection with the most data in a paragraph and a table. Further
// connections follow in a second table, with the first limit of each.
func Write(w io.Writer, r *explain.Report) error {
	var b strings.Builder
	width := cli.Columns(w)
	if width <= 0 {
		width = columns
	}
	b.WriteString(wrap(r.Text, width))
	if len(r.Connections) > 0 {
		c := &r.Connections[0]
		for _, why := range c.WhyNot {
			line := "MPTCP: " + why.Text
			if why.Iface != "" {
				line = "MPTCP over " + why.Iface + ": " + why.Text
			}
			if why.Remedy != "" {
				line += "; " + why.Remedy
			}
			b.WriteString(wrap(line, width))
		}
		b.WriteByte('\n')
		if err := limits(&b, c, width); err != nil {
			return err
		}
	}
	if len(r.Connections) > 1 {
		b.WriteByte('\n')
		if err := others(&b, r.Connections[1:], width); err != nil {
			return err
		}
	}
	if r.Unseen > 0 && len(r.Connections) > 0 {
		fmt.Fprintf(&b, "\n%s more began and ended too fast to be observed.\n", text.Plural(int(r.Unseen), "connection"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// limits prints the limits of one connection.
func limits(b *strings.Builder, c *explain.Connection, width int) error {
	t := cli.NewTable("LIMIT", ">TIME", "INTERFACE", "EVIDENCE").Narrow()
	for i := range c.Limits {
		l := &c.Limits[i]
		t.Row(l.Name(), fmt.Sprintf("%.0f%%", 100*l.Share), l.Interface, strings.Join(l.Evidence, "; "))
	}
	return t.Write(cli.Screen{Writer: b, Width: width})
}

// others prints one line for each connection.
func others(b *strings.Builder, all []explain.Connection, width int) error {
	t := cli.NewTable("PROCESS", "PEER", "DIRECTION", ">RATE", "LIMIT", ">TIME").Narrow()
	for i := range all[:min(len(all), othersMost)] {
		c := &all[i]
		name, share := "", ""
		if len(c.Limits) > 0 {
			name, share = c.Limits[0].Name(), fmt.Sprintf("%.0f%%", 100*c.Limits[0].Share)
		}
		process := ""
		if c.Process != "" {
			process = fmt.Sprintf("%s(%d)", c.Process, c.PID)
		}
		t.Row(process, c.Remote, c.Direction, text.Scaled(float64(c.Rate), "bit/s"), name, share)
	}
	if err := t.Write(cli.Screen{Writer: b, Width: width}); err != nil {
		return err
	}
	if n := len(all) - othersMost; n > 0 {
		fmt.Fprintf(b, "%d more; -o json lists all\n", n)
	}
	return nil
}

// AtEnd returns a function that prints the report of a run that has ended.
func AtEnd(program string, w io.Writer) func(*explain.Report) {
	return func(r *explain.Report) {
		d := time.Duration(r.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
		cli.Note(w, program, "what limited the run in %v:", d)
		_ = Write(w, r) // standard error has failed, so nobody can be told
	}
}

// wrap breaks text into lines.
func wrap(s string, width int) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text.Plain(s)) {
		switch length := len([]rune(word)); {
		case i == 0:
			n = length
		case n+1+length > width:
			b.WriteByte('\n')
			n = length
		default:
			b.WriteByte(' ')
			n += 1 + length
		}
		b.WriteString(word)
	}
	b.WriteByte('\n')
	return b.String()
}
