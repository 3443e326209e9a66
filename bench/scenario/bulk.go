// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

const bulk = "bulk"

func init() {
	register(Scenario{
		Order: 10, Name: bulk, Title: "Bulk transfer", Seed: "002, 003", Quick: true,
		About: "One connection to or from a server on the host's kernel, 128 KiB a call, with every offload and with none (`ethtool -K` on both ends of the veth, " +
			"no feature of virtio on the tap). `host` goes over veth, the others over a tap. CPU time is that of client, server, lklrun and lklhost together, " +
			"from the first byte to the last. Both ends have CUBIC, but for the rows with `cc=own`, where each kernel has its own choice: Linux' is CUBIC, a distribution's " +
			"may be BBR, which paces itself.",
		Budget: Budget{Quick: 45 * time.Second, Full: 260 * time.Second},
		Build:  buildBulk, Targets: bulkTargets(), Figures: bulkFigures,
	})
}

func bulkKey(dir, offloads, p, v string) table.Key {
	return table.Key{Scenario: bulk, What: bulk, Params: table.Params{"dir": dir, "offloads": offloads}, Placement: p, Variant: v}
}

func buildBulk(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	var ms []Measure
	for _, offloads := range []string{"on", "off"} {
		o := lab.WireOptions{Name: "bulk-" + offloads}
		if offloads == "off" {
			o.Offloads = "off"
		}
		w, err := l.Wire(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, p := range lab.Placements {
			if offloads == "off" && !l.Form.Full && p != lab.OneCPU {
				continue
			}
			if err := w.Serve(ctx, p); err != nil {
				return nil, err
			}
			for _, dir := range []string{"send", "recv"} {
				for _, v := range l.Variants(lab.Host, lab.Library, lab.Preload, lab.Supervise, lab.LKL49) {
					ms = append(ms, sampled(l, bulkKey(dir, offloads, p, v),
						l.Lklbench(lab.Run{Variant: v, Placement: p, Wire: w}, dir, l.Milliseconds())))
				}
				if offloads == "off" || !l.Form.Full {
					continue
				}
				for _, v := range []string{lab.Host, lab.Library, lab.Supervise} {
					k := bulkKey(dir, offloads, p, v)
					k.Params["cc"] = "own"
					r := lab.Run{Variant: v, Placement: p, Wire: w, Options: []string{"--cc", "own"}}
					ms = append(ms, sampled(l, k, l.Lklbench(r, dir, l.Milliseconds())))
				}
			}
		}
	}
	return ms, nil
}

// sampled is a measure that is a command.
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
		for _, p := range lab.Placements {
			ts = append(ts, table.Target{Criterion: t.criterion, What: t.what, Unit: t.unit, AtLeast: t.atLeast, AtMost: t.atMost,
				Of: bulkKey(t.dir, t.offloads, p, t.of), Base: bulkKey(t.dir, t.offloads, p, t.base)})
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
					series.Add(s, bulkKey(dir, "on", p, v), u.unit)
				}
			}
			b.Series = append(b.Series, series)
		}
		plots = append(plots, b)
	}
	return plots
}
