// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

func init() {
	register(Scenario{
		Order: 200, Name: "bbr", Title: "BBR and CUBIC on long, lossy paths", Seed: "003",
		About: "One connection through a middlebox. The middlebox is a second instance of our own stack that bridges " +
			"two taps. Towards the server, its netem delays packets by 100 ms, drops 1 %, and limits the rate to " +
			"1 Gbit/s. The receiver counts the bytes. `fraction` is the share of the link's capacity for payload, " +
			"which is 1448/1514 of its rate: netem counts Ethernet frames, and TCP with timestamps carries 1,448 " +
			"bytes in each. It is the mean from the fourth to the tenth second, after BBR's start-up and before " +
			"its first PROBE_RTT. In PROBE_RTT, BBR drains the path every ten seconds, for 200 ms and a round " +
			"trip. That costs 3 % on a path this long on any stack. `fraction-14s` is the mean from the fourth to " +
			"the fourteenth second, which contains one PROBE_RTT. BBR also paces 1 % below its measured rate, and " +
			"1 % is lost. More than 0.98 without the probe and 0.955 with it can therefore hardly be reached. " +
			"Both kernels may use buffers of 100 MB. The stack paces with fq. The host's kernel here has no fq, " +
			"so its TCP paces itself. `direct` is one second at full speed without middlebox and delay, after a " +
			"warm-up of half a second. The published measurement used a link of 10 Gbit/s. The host's BBR reached " +
			"9.41 Gbit/s on it, and LKL's 0.46. A veth and a tap have no rate, so the reference here is the " +
			"host's BBR in the same run.",
		Quick:  true,
		Budget: Budget{Quick: 25 * time.Second, Full: 310 * time.Second},
		Build:  buildBBR,
		Targets: []table.Target{
			{Criterion: "4", What: "library: BBR, 100 ms and 1 % loss", Unit: "fraction", Of: farKey(lossy, "bbr", lab.Library), AtLeast: 0.97},
			{Criterion: "4", What: "library: BBR, 100 ms and 1 % loss, 14 s", Unit: "fraction-14s", Of: farKey(lossy, "bbr", lab.Library), AtLeast: 0.97},
			{Criterion: "4", What: "supervise: BBR, 100 ms and 1 % loss", Unit: "fraction", Of: farKey(lossy, "bbr", lab.Supervise), AtLeast: 0.97},
			{Criterion: "4", What: "supervise: BBR, 100 ms and 1 % loss, 14 s", Unit: "fraction-14s", Of: farKey(lossy, "bbr", lab.Supervise), AtLeast: 0.97},
			{Criterion: "4", What: "library: BBR, 100 ms without loss", Unit: "Gbit/s", Of: farKey(long, "bbr", lab.Library), Base: farKey(long, "bbr", lab.Host), AtLeast: 0.98},
			{Criterion: "4", What: "supervise: BBR, 100 ms without loss", Unit: "Gbit/s", Of: farKey(long, "bbr", lab.Supervise), Base: farKey(long, "bbr", lab.Host), AtLeast: 0.98},
			{Criterion: "4", What: "library: BBR, no delay", Unit: "Gbit/s", Of: farKey(shape{}, "bbr", lab.Library), Base: farKey(shape{}, "bbr", lab.Host), AtLeast: 0.98},
			{Criterion: "4", What: "supervise: BBR, no delay", Unit: "Gbit/s", Of: farKey(shape{}, "bbr", lab.Supervise), Base: farKey(shape{}, "bbr", lab.Host), AtLeast: 0.98},
		},
		Figures: bbrFigures,
	})
}

// The measured shapes.
var (
	lossy = shape{Mbit: 1000, Delay: 100 * time.Millisecond, Loss: 1}
	long  = shape{Mbit: 1000, Delay: 100 * time.Millisecond}
)

// Intervals of a transfer; see About.
var (
	cruise = window{"fraction", 4, 10}
	whole  = window{"fraction-14s", 4, 14}
)

// String returns the shape's name in a row.
func (s shape) String() string {
	if s == (shape{}) {
		return "direct"
	}
	return fmt.Sprintf("%dMbit-%v-%g%%", s.Mbit, s.Delay, s.Loss)
}

func farKey(s shape, cc, v string) table.Key {
	return table.Key{Scenario: "bbr", What: "goodput", Params: table.Params{"path": s.String(), "cc": cc}, Placement: lab.Unpinned, Variant: v}
}

func buildBBR(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	f, err := makeFarPath(ctx, l)
	if err != nil {
		return nil, err
	}
	var ms []Measure
	now := shape{Mbit: -1} // no shape is set yet
	row := func(s shape, cc string, rounds, seconds int, windows ...window) {
		for _, v := range l.Variants(lab.Host, lab.Library, lab.Supervise) {
			ms = append(ms, Measure{Key: farKey(s, cc, v), Rounds: rounds, Take: func(ctx context.Context) (table.Sample, error) {
				if now != s {
					if err := f.form(ctx, s); err != nil {
						return nil, err
					}
					now = s
				}
				sample, err := f.send(ctx, farRun{variant: v, cc: cc, seconds: seconds}, windows...)
				if err != nil {
					return nil, err
				}
				inLink(sample, s, windows)
				return sample, nil
			}})
		}
	}
	if !l.Form.Full {
		row(lossy, "bbr", 1, 7, window{"fraction", 4, 7})
		return ms, nil
	}
	w, err := l.Wire(ctx, lab.WireOptions{Name: "bbr"})
	if err != nil {
		return nil, err
	}
	if err := w.Serve(ctx, lab.Unpinned); err != nil {
		return nil, err
	}
	for _, cc := range []string{"bbr", "cubic"} {
		for _, v := range l.Variants(lab.Host, lab.Library, lab.Supervise) {
			argv := l.Lklbench(lab.Run{Variant: v, Placement: lab.Unpinned, Wire: w, Stack: "bbr", Library: []string{"--sysctl", "net.core.default_qdisc=fq"},
				Options: []string{"--cc", cc, "--warm", "500"}}, "send", "1000")
			ms = append(ms, Measure{Key: farKey(shape{}, cc, v), Take: func(ctx context.Context) (table.Sample, error) { return l.Sample(ctx, argv...) }})
		}
	}
	row(lossy, "bbr", 3, 14, cruise, whole)
	row(lossy, "cubic", 1, 10, cruise)
	row(long, "bbr", 2, 10, cruise)
	row(long, "cubic", 1, 10, cruise)
	return ms, nil
}

// inLink returns a sample that converts the means of windows from Gbit/s to shares
// of the link.
func inLink(sample table.Sample, s shape, windows []window) {
	sample["Gbit/s"] = sample[windows[0].unit]
	for _, w := range windows {
		sample[w.unit] /= float64(s.Mbit) / 1e3 * payload
	}
}

// bbrFigures returns a figure that shows each sender's share of each path.
func bbrFigures(set *table.Set) []report.Plot {
	b := report.Bars{Name: "bbr-goodput", Title: "Goodput by path and congestion control", Y: "Gbit/s"}
	rows := []struct {
		s  shape
		cc string
	}{{long, "bbr"}, {lossy, "bbr"}, {long, "cubic"}, {lossy, "cubic"}}
	for _, v := range []string{lab.Host, lab.Library, lab.Supervise} {
		series := report.Series{Name: v}
		for _, r := range rows {
			m, ok := set.Median(farKey(r.s, r.cc, v), "Gbit/s")
			if !ok {
				m = math.NaN()
			}
			lo, hi := set.Quartiles(farKey(r.s, r.cc, v), "Gbit/s")
			series.Values, series.Low, series.High = append(series.Values, m), append(series.Low, lo), append(series.High, hi)
		}
		b.Series = append(b.Series, series)
	}
	for _, r := range rows {
		b.Groups = append(b.Groups, fmt.Sprintf("%s, %g %% loss", r.cc, r.s.Loss))
	}
	return []report.Plot{b}
}
