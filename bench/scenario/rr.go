// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

const rr = "rr"

// The ways in which a variant waits for a packet: its default, sleeping immediately, or
// polling for some time.
const (
	pollOwn  = "own"
	pollOff  = "off"
	pollOn   = "200us"
	pollUsec = "200"
)

func init() {
	register(Scenario{
		Order: 20, Name: rr, Title: "One byte there and back", Seed: "002", Quick: true,
		About: "TCP_RR with one byte over one connection. `poll=own` uses each variant's default. `off` never polls " +
			"(`lkl_set_spin(0)`, `--spin 0`), and `200us` polls for this time before it sleeps. For the host's " +
			"kernel this is SO_BUSY_POLL on the client's socket. It has no effect, because veth has no receive " +
			"queue for it; the table shows it unchanged. The server never polls.",
		Budget: Budget{Quick: 25 * time.Second, Full: 100 * time.Second},
		Build:  buildRR, Targets: rrTargets(), Figures: rrFigures,
	})
}

func rrKey(poll, p, v string) table.Key {
	return table.Key{Scenario: rr, What: rr, Params: table.Params{"poll": poll}, Placement: p, Variant: v}
}

func buildRR(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: rr})
	if err != nil {
		return nil, err
	}
	var ms []Measure
	for _, poll := range []string{pollOwn, pollOff, pollOn} {
		for _, p := range lab.Placements {
			if err := w.Serve(ctx, p); err != nil {
				return nil, err
			}
			if !l.Form.Full && poll != pollOwn && p != lab.Unpinned {
				continue
			}
			for _, v := range l.Variants(lab.Host, lab.Library, lab.Preload, lab.Supervise, lab.LKL49) {
				r := lab.Run{Variant: v, Placement: p, Wire: w}
				if !polling(&r, poll) {
					continue
				}
				ms = append(ms, sampled(l, rrKey(poll, p, v), l.Lklbench(r, rr, l.Count())))
			}
		}
	}
	return ms, nil
}

// polling sets how a run waits for packets, and reports whether its variant
// supports this.
func polling(r *lab.Run, poll string) bool {
	if poll == pollOwn {
		return true
	}
	usec := map[string]string{pollOff: "0", pollOn: pollUsec}[poll]
	switch r.Variant {
	case lab.Host:
		r.Options = []string{"--busypoll", usec}
	case lab.Library:
		r.Library = []string{"--spin", usec}
	case lab.Preload, lab.Supervise:
		r.Flags = []string{"--spin", usec}
	default: // lkl-4.9 does not support it
		return false
	}
	return true
}

func rrTargets() []table.Target {
	var ts []table.Target
	for _, t := range []struct {
		criterion, what, of, base string
		places                    []string
		atMost                    float64
	}{
		{"1", "library, round trip", lab.Library, lab.Host, []string{lab.OneCPU}, 1.5},
		{"1", "library, round trip", lab.Library, lab.Host, []string{lab.TwoCPUs}, 1.1},
		{"2", "preload, round trip", lab.Preload, lab.Library, lab.Placements, 1.1},
		{"2", "supervise, round trip", lab.Supervise, lab.Host, []string{lab.Unpinned}, 0.9},
		{"2", "supervise, round trip", lab.Supervise, lab.Host, []string{lab.OneCPU}, 2.5},
	} {
		for _, p := range t.places {
			ts = append(ts, table.Target{Criterion: t.criterion, What: t.what, Unit: "µs", AtMost: t.atMost,
				Of: rrKey(pollOwn, p, t.of), Base: rrKey(pollOwn, p, t.base)})
		}
	}
	return ts
}

func rrFigures(s *table.Set) []report.Plot {
	b := report.Bars{Name: "rr-latency", Title: "One byte there and back", Y: "µs"}
	b.Groups = append(b.Groups, lab.Placements...)
	for _, v := range []string{lab.Host, lab.Library, lab.Preload, lab.Supervise, lab.LKL49} {
		series := report.Series{Name: v}
		for _, p := range lab.Placements {
			series.Add(s, rrKey(pollOwn, p, v), "µs")
		}
		b.Series = append(b.Series, series)
	}
	return []report.Plot{b}
}
