// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/drill"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// runScript performs the steps of a script and prints the results.
func (c *ctl) runScript(ctx context.Context, info *instance.Info, conn *stackconn.Conn, s *drill.Script) error {
	hooks := drill.Hooks{Done: func(d drill.Done) {
		cli.Note(c.stderr, program, "%.1fs %s %s", d.At, d.Iface, d.Step)
	}}
	if f, ok := c.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bar := progressbar.NewOptions64(s.End.Milliseconds(), progressbar.OptionSetWriter(f), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(false), progressbar.OptionUseANSICodes(true))
		defer func() { _ = bar.Finish() }() // only a progress display
		hooks.Now = func(elapsed time.Duration) { _ = bar.Set64(min(elapsed, s.End).Milliseconds()) }
		hooks.Done = func(d drill.Done) { bar.Describe(fmt.Sprintf("%.1fs %s %s", d.At, d.Iface, d.Step)) }
	}
	t, err := s.Run(ctx, conn, info.Name, hooks)
	if t == nil {
		return badStep(err)
	}
	if c.output == cli.OutputJSON {
		if werr := cli.WriteJSON(c.stdout, t); werr != nil {
			return werr
		}
		return err
	}
	if werr := writeTimeline(c.stdout, t); werr != nil {
		return werr
	}
	return err
}

// timelineColumns is the width of a row of blocks: 80 minus the text around it.
const timelineColumns = 55

// writeTimeline prints the steps. For each connection, it prints a row of
// blocks for it and for each of its subflows, and its behaviour after each
// step.
func writeTimeline(w io.Writer, t *drill.Timeline) error {
	var b strings.Builder
	if t.Stopped != "" {
		fmt.Fprintf(&b, "%s after %.1fs\n", t.Stopped, t.Seconds)
	}
	steps := cli.NewTable("STEP", ">AT", "IF", "WHAT").Narrow()
	for _, d := range t.Steps {
		steps.Row(d.Mark, fmt.Sprintf("%.1fs", d.At), d.Iface, d.Step)
	}
	if len(t.Steps) > 0 {
		if err := steps.Write(&b); err != nil {
			return err
		}
	}
	shown := 0
	for i := range t.Connections {
		if c := &t.Connections[i]; c.Sent+c.Received > 0 {
			shown++
			if err := writeConnection(&b, t, c); err != nil {
				return err
			}
		}
	}
	if idle := len(t.Connections) - shown; idle > 0 {
		fmt.Fprintf(&b, "\n%s carried nothing\n", plural(idle, "connection"))
	}
	if t.Omitted > 0 {
		fmt.Fprintf(&b, "\n%s more were not followed\n", plural(t.Omitted, "connection"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeConnection(b *strings.Builder, t *drill.Timeline, c *drill.Connection) error {
	title := fmt.Sprintf("%s %s -> %s", c.Proto, c.Local, c.Remote)
	if c.Process != "" {
		who := fmt.Sprintf("%s(%d)", c.Process, c.PID)
		if title += " "; len(title)+len(who) > helpColumns { // possible with IPv6
			title += "\n  "
		}
		title += who
	}
	fmt.Fprintf(b, "\n%s\n", title)
	facts := []string{"received " + text.Scaled(float64(c.Received), "B"), "sent " + text.Scaled(float64(c.Sent), "B")}
	if c.Retrans != nil {
		facts = append(facts, fmt.Sprintf("retransmitted %d", *c.Retrans))
	}
	if c.Fallback {
		facts = append(facts, "fell back to TCP")
	}
	if c.Stall > 0 {
		facts = append(facts, fmt.Sprintf("stalled %.1fs at %.1fs", c.Stall, c.StallAt))
	}
	if c.Standing != nil {
		facts = append(facts, fmt.Sprintf("nothing in the last %.1fs", *c.Standing))
	}
	fmt.Fprintf(b, "  %s\n", strings.Join(facts, ", "))
	received := c.Received >= c.Sent
	fmt.Fprintf(b, "  %-8s %s\n", "", marks(t))
	most := 0.0
	row := func(name string, f *drill.Flow) {
		blocks, peak := spark(t, f, received, most)
		most = max(most, peak)
		fmt.Fprintf(b, "  %-8s %s %s\n", name, blocks, text.Scaled(peak, "bit/s"))
	}
	row("all", &c.Flow)
	if len(c.Subflows) > 1 || len(c.Subflows) == 1 && c.Subflows[0].Iface != "" {
		for k := range c.Subflows {
			name := c.Subflows[k].Iface
			if name == "" {
				name = fmt.Sprint("#", k+1)
			}
			row(name, &c.Subflows[k].Flow)
		}
	}
	writeEvents(b, t, c)
	return writePhases(b, t, c, received)
}

// writeEvents prints the events of a connection during the script.
func writeEvents(b *strings.Builder, t *drill.Timeline, c *drill.Connection) {
	const most = 20 // events printed per connection; the others are only counted
	n := 0
	for _, e := range t.Events {
		if e.Token != c.Token || c.Token == "" {
			continue
		}
		if n++; n <= most {
			fmt.Fprintf(b, "  %6.2fs %s\n", e.At, e.Words())
		}
	}
	if n > most {
		fmt.Fprintf(b, "  and %d events more\n", n-most)
	}
}

// writePhases prints the table of a connection's behaviour after each step.
func writePhases(b *strings.Builder, t *drill.Timeline, c *drill.Connection, received bool) error {
	if len(c.Phases) == 0 {
		return nil
	}
	const mostColumns = 4 // there is no room for more subflows
	head := []string{"  AFTER", ">ALL"}
	subflows := c.Subflows[:min(len(c.Subflows), mostColumns)]
	if c.Proto == "tcp" {
		subflows = nil
	}
	for _, s := range subflows {
		name := s.Iface
		if name == "" {
			name = s.Local
		}
		head = append(head, ">"+name)
	}
	table := cli.NewTable(append(head, ">STALL")...).Narrow()
	number := func(p drill.Phase) string {
		r := p.TX
		if received {
			r = p.RX
		}
		if r == nil {
			return ""
		}
		return text.Scaled(*r, "bit/s")
	}
	for i, p := range c.Phases {
		name := "  start"
		if i > 0 {
			d := t.Steps[i-1]
			name = fmt.Sprintf("  %s %.1fs", d.Mark, d.At)
		}
		cells := []string{name, number(p)}
		for _, s := range subflows {
			cells = append(cells, number(s.Phases[i]))
		}
		stall := ""
		if p.Stall != nil {
			stall = fmt.Sprintf("%.1fs", *p.Stall)
		}
		table.Row(append(cells, stall)...)
	}
	return table.Write(b)
}

// marks returns the letters of the steps, each above the column of its time.
func marks(t *drill.Timeline) string {
	row := []rune(strings.Repeat(" ", timelineColumns))
	for _, d := range t.Steps {
		if n := int(d.At / t.Seconds * timelineColumns); n < len(row) {
			row[n] = []rune(d.Mark)[0]
		}
	}
	return strings.TrimRight(string(row), " ")
}

// spark formats a flow's rate as a row of blocks. The highest block is the rate
// most, or the flow's own peak. A blank means that the flow did not exist, and
// a dot that no data moved.
func spark(t *drill.Timeline, f *drill.Flow, received bool, most float64) (row string, peak float64) {
	rates := f.TxRates
	if received {
		rates = f.RxRates
	}
	width := t.Seconds / timelineColumns
	var sum, took [timelineColumns]float64
	for i := 1; i < len(t.Times); i++ {
		if rates[i] == nil {
			continue
		}
		// The interval between two samples counts for each column that
		// it overlaps.
		from, to := t.Times[i-1], t.Times[i]
		for n := int(from / width); n < timelineColumns && float64(n)*width < to; n++ {
			part := max(0, min(to, float64(n+1)*width)-max(from, float64(n)*width))
			sum[n] += *rates[i] * part
			took[n] += part
		}
	}
	for n := range sum {
		if took[n] > 0 {
			peak = max(peak, sum[n]/took[n])
		}
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	scale := max(most, peak)
	out := make([]rune, timelineColumns)
	for n := range out {
		switch rate := sum[n] / took[n]; {
		case took[n] == 0:
			out[n] = ' '
		case rate == 0:
			out[n] = '.'
		default:
			out[n] = blocks[min(int(math.Ceil(rate/scale*float64(len(blocks))))-1, len(blocks)-1)]
		}
	}
	return string(out), peak
}
