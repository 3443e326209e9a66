// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"

	"github.com/lklrun/lklrun/bench/table"
)

// A bound is a limit for the figure of a target, shown by a measurement.
type bound struct {
	best   float64 // in the unit of the target
	got    float64 // lklrun's figure in the same measurement
	source string
}

// A place is a target in one placement.
type place struct{ criterion, what, placement string }

// Placements of the measured side.
const (
	unpinned = "unpinned"
	oneCPU   = "one-cpu"
	twoCPUs  = "two-cpus"
)

// Sources of bounds.
const (
	bothExperiments = "no copy of the program's data, and a host thread for the frames: experiments, below"
	noCopy          = "no copy of the program's data: experiment, below"
	noTapRead       = "the profile below, without reading the tap and its copy"
	noTapWrite      = "the profile below, without writing to the tap, but with its copy"
	noTapReadCall   = "the profile below, without reading the tap, but with its copy"
	bbrItself       = "BBR itself: 3 % for PROBE_RTT, 1 % for its pace, and 1 % loss"
)

// shown are the bounds that experiments and profiles in reasons.md and on the page have
// shown. A profile gives a bound on one CPU only, where the throughput is the inverse of
// the CPU time.
var shown = map[place]bound{
	{"1", "library, send, cc=cubic", unpinned}:                   {53.7 / 35.8, 49.0 / 35.8, bothExperiments},
	{"1", "library, send, cc=cubic", oneCPU}:                     {50.7 / 47.1, 42.7 / 47.1, noCopy},
	{"1", "library, send, cc=cubic", twoCPUs}:                    {61.3 / 34.0, 43.3 / 34.0, bothExperiments},
	{"1", "library, receive, cc=cubic", oneCPU}:                  {224.0 / (311 - 28 - 41), 224.0 / 311, noTapRead},
	{"1", "library, CPU per GB received, cc=cubic", oneCPU}:      {(311 - 28 - 41) / 224.0, 311 / 224.0, noTapRead},
	{"1", "library, send, no offloads, cc=cubic", oneCPU}:        {1488.0 / (2065 - 834), 1488.0 / 2065, noTapWrite},
	{"1", "library, receive, no offloads, cc=cubic", oneCPU}:     {1266.0 / (1837 - 739), 1266.0 / 1837, noTapReadCall},
	{"1", "library, receive, no offloads, cc=default", oneCPU}:   {1507.0 / (2514 - 901), 1507.0 / 2514, noTapReadCall},
	{"4", "library: BBR, 100 ms and 1 % loss, 14 s", unpinned}:   {0.97 * 0.99 * 0.99, 0, bbrItself},
	{"4", "supervise: BBR, 100 ms and 1 % loss, 14 s", unpinned}: {0.97 * 0.99 * 0.99, 0, bbrItself},
	{"4", "library: BBR, 100 ms and 1 % loss", unpinned}:         {0.99 * 0.99, 0, bbrItself},
	{"4", "supervise: BBR, 100 ms and 1 % loss", unpinned}:       {0.99 * 0.99, 0, bbrItself},
}

// boundOf returns the bound of a target. An engine cannot be faster than the library that
// it uses, so the library's figure in the same run is a bound of the engine.
func boundOf(s *table.Set, t table.Target, figure float64) (bound, bool) {
	if b, ok := shown[place{t.Criterion, t.What, t.Of.Placement}]; ok {
		if b.got == 0 {
			b.got = figure
		}
		return b, true
	}
	if t.Base.Variant == "library" {
		return bound{1, figure, "the library in this run"}, true
	}
	if t.Of.Variant == "library" || t.Base.Variant != "host" {
		return bound{}, false
	}
	own := t
	own.Of = t.Of.With("library")
	best, verdict := s.Judge(own)
	return bound{best, figure, "the library in this run"}, verdict != table.Unknown
}

// share returns which part of the bound is reached: 1 means all of it.
func (b bound) share(t table.Target) float64 {
	if t.AtMost != 0 {
		return b.best / b.got
	}
	return b.got / b.best
}

const aboutBounds = `The bound is an upper limit that has been shown: by an experiment or a profile that leaves a part
out, by the library that an engine uses, or by the algorithm. Where the bound itself misses the
target, only another design can meet the target. "Of the bound" is lklrun's figure divided by the
bound, both from the measurement that showed the bound. It may therefore differ from the quotient of
the two columns before it. At 1.00, lklrun is at the limit. A dash means that no bound has been
shown.
`

// bounds returns the table of missed targets with their bounds.
func bounds(s *table.Set, ds []Demand) Table {
	t := Table{Head: []string{"", "what", "placement", "target", "figure", "bound", "of the bound", "source"}}
	for _, d := range ds {
		for _, r := range d.Results {
			if r.Verdict != table.Missed {
				continue
			}
			row := []string{d.Target.Criterion, d.Target.What, strings.TrimSpace(r.Placement), d.Target.Bound(), table.Number(r.Figure), "-", "-", "-"}
			if b, ok := boundOf(s, r.target, r.Figure); ok {
				row[5], row[6], row[7] = table.Number(b.best), table.Number(b.share(r.target)), b.source
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
