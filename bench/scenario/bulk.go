// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"slices"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

const bulk = "bulk"

func init() {
	register(Scenario{
		Order: 10, Name: bulk, Title: "Bulk transfer", Seed: "002, 003", Quick: true,
		About: "One connection to or from a server on the host's kernel, 128 KiB for each call, with all offloads " +
			"and with none (`ethtool -K` on both ends of the veth, no virtio features on the tap). `host` uses " +
			"veth, the others use a tap. CPU time is that of client, server, lklrun and lklhost together, from " +
			"the first byte to the last. With `cc=cubic` both ends use CUBIC, so the rows are directly " +
			"comparable. With `cc=default` each kernel uses its own default: the stack's is CUBIC; the host's may " +
			"be BBR, which paces itself.",
		Budget: Budget{Quick: 55 * time.Second, Full: 565 * time.Second},
		Build:  buildBulk, Targets: bulkTargets(), Figures: bulkFigures,
	})
}

func bulkKey(dir, offloads, cc, p, v string) table.Key {
	return table.Key{Scenario: bulk, What: bulk, Params: table.Params{"dir": dir, "offloads": offloads, "cc": cc}, Placement: p, Variant: v}
}

// A bulkRow is one row of the scenario.
type bulkRow struct{ offloads, cc, placement, dir string }

// bulkRows returns the rows of the full or the quick form.
func bulkRows(full bool) []bulkRow {
	var rows []bulkRow
	for _, offloads := range []string{"on", "off"} {
		for _, cc := range []string{lab.CC, lab.DefaultCC} {
			for _, p := range lab.Placements {
				usual := offloads == "on" && cc == lab.CC
				if p != lab.OneCPU && (offloads == "off" && cc == lab.DefaultCC || !full && !usual) {
					continue
				}
				if !full && offloads == "off" && cc == lab.DefaultCC {
					continue
				}
				for _, dir := range []string{"send", "recv"} {
					rows = append(rows, bulkRow{offloads, cc, p, dir})
				}
			}
		}
	}
	return rows
}

// often lists variants that are the base of comparisons, or that must be within 5% of
// one. Five turns are not enough for this, because single turns differ by 50%.
var often = []string{lab.Host, lab.Library, lab.Preload}

func buildBulk(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	wires := map[string]*lab.Wire{}
	var ms []Measure
	for _, row := range bulkRows(l.Form.Full) {
		w := wires[row.offloads]
		if w == nil {
			o := lab.WireOptions{Name: "bulk-" + row.offloads}
			if row.offloads == "off" {
				o.Offloads = "off"
			}
			var err error
			if w, err = l.Wire(ctx, o); err != nil {
				return nil, err
			}
			wires[row.offloads] = w
		}
		if err := w.Serve(ctx, row.placement); err != nil {
			return nil, err
		}
		for _, v := range l.Variants(lab.Host, lab.Library, lab.Preload, lab.Supervise, lab.LKL49) {
			if v == lab.LKL49 && row.offloads == "off" && !l.Form.Full {
				continue // the variant stalls too often, and has no target in this row
			}
			r := lab.Run{Variant: v, Placement: row.placement, Wire: w, Options: []string{"--cc", row.cc}}
			m := sampled(l, bulkKey(row.dir, row.offloads, row.cc, row.placement, v), l.Lklbench(r, row.dir, l.Milliseconds()))
			if l.Form.Full && row.offloads == "on" && row.cc == lab.CC && slices.Contains(often, v) {
				m.Times = 3
			}
			ms = append(ms, m)
		}
	}
	return ms, nil
}

// sampled returns a measure that runs a command.
func sampled(l *lab.Lab, k table.Key, argv []string) Measure {
	return Measure{Key: k, Take: func(ctx context.Context) (table.Sample, error) { return l.Sample(ctx, argv...) }}
}

func bulkTargets() []table.Target {
	var ts []table.Target
	for _, t := range []struct {
		criterion, what, dir, offloads, of, base, unit string
		atLeast, atMost                                float64
	}{
		{"1", "library, send", "send", "on", lab.Library, lab.Host, "Gbit/s", 2, 0},
		{"1", "library, receive", "recv", "on", lab.Library, lab.Host, "Gbit/s", 1, 0},
		{"1", "library, send, no offloads", "send", "off", lab.Library, lab.Host, "Gbit/s", 1, 0},
		{"1", "library, receive, no offloads", "recv", "off", lab.Library, lab.Host, "Gbit/s", 0.95, 0},
		{"1", "library, CPU per GB sent", "send", "on", lab.Library, lab.Host, "cpu-s/GB", 0, 1.2},
		{"1", "library, CPU per GB received", "recv", "on", lab.Library, lab.Host, "cpu-s/GB", 0, 1.2},
		{"1", "library, send", "send", "on", lab.Library, lab.LKL49, "Gbit/s", 2.5, 0},
		{"1", "library, receive", "recv", "on", lab.Library, lab.LKL49, "Gbit/s", 1.5, 0},
		{"2", "preload, send", "send", "on", lab.Preload, lab.Library, "Gbit/s", 0.95, 0},
		{"2", "preload, receive", "recv", "on", lab.Preload, lab.Library, "Gbit/s", 0.95, 0},
		{"2", "supervise, send", "send", "on", lab.Supervise, lab.Host, "Gbit/s", 1.2, 0},
		{"2", "supervise, receive", "recv", "on", lab.Supervise, lab.Host, "Gbit/s", 0.8, 0},
	} {
		for _, cc := range []string{lab.CC, lab.DefaultCC} {
			for _, p := range lab.Placements {
				if cc == lab.DefaultCC && (t.base != lab.Host || t.offloads == "off" && p != lab.OneCPU) {
					continue
				}
				ts = append(ts, table.Target{Criterion: t.criterion, What: t.what + ", cc=" + cc, Unit: t.unit, AtLeast: t.atLeast, AtMost: t.atMost,
					Of: bulkKey(t.dir, t.offloads, cc, p, t.of), Base: bulkKey(t.dir, t.offloads, cc, p, t.base)})
			}
		}
	}
	return ts
}

func bulkFigures(s *table.Set) []report.Plot {
	var plots []report.Plot
	for _, u := range []struct{ unit, name, title string }{
		{"Gbit/s", "bulk-throughput", "Bulk transfer with offloads"},
		{"cpu-s/GB", "bulk-cpu", "CPU time of a gigabyte"},
	} {
		b := report.Bars{Name: u.name, Title: u.title, Y: u.unit}
		for _, p := range lab.Placements {
			for _, dir := range []string{"send", "recv"} {
				b.Groups = append(b.Groups, dir+" "+p)
			}
		}
		for _, v := range []string{lab.Host, lab.Library, lab.Preload, lab.Supervise, lab.LKL49} {
			series := report.Series{Name: v}
			for _, p := range lab.Placements {
				for _, dir := range []string{"send", "recv"} {
					series.Add(s, bulkKey(dir, "on", lab.CC, p, v), u.unit)
				}
			}
			b.Series = append(b.Series, series)
		}
		plots = append(plots, b)
	}
	return plots
}
