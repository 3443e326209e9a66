// SPDX-License-Identifier: Apache-2.0

// Package ab compares variants of a run, such as two stacks. It runs a command with each
// variant in turn, and reports the cost of each run, medians, their spread, and whether a
// difference is significant.
package ab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/perf/benchmath"
)

// Comparison is the result of the runs.
type Comparison struct {
	Command  []string  `json:"command"`  // command that was run
	Started  time.Time `json:"started"`  // start time of the first run
	Rounds   int       `json:"rounds"`   // requested number of runs per variant
	Warmups  int       `json:"warmups"`  // warm-up runs per variant, which are not measured
	Stopped  bool      `json:"stopped"`  // the comparison was interrupted, so runs are missing
	Variants []Variant `json:"variants"` // variants in the given order; ratios are relative to the first

	Sources []Source `json:"sources,omitempty"` // after --merge: the results that were merged
}

// Variant is one way to run the command.
type Variant struct {
	Name    string   `json:"name"`
	Flags   []string `json:"flags"`   // flags of lklrun that only this variant has
	Runs    []Run    `json:"runs"`    // runs in the order in which they were made, without warm-ups
	Metrics []Metric `json:"metrics"` // metrics of the successful runs
}

// Run is the cost of one run. Unknown values are absent.
type Run struct {
	Number   int              `json:"number"`                   // number of the run, from 1
	Status   int              `json:"status"`                   // exit status of the command, as in a shell
	Failed   bool             `json:"failed"`                   // the status is not 0
	Words    string           `json:"words,omitempty"`          // if the run failed: the last output on standard error
	Seconds  *float64         `json:"time_s,omitempty"`         // time from the command's start to its end
	User     *float64         `json:"user_s,omitempty"`         // CPU time of the command and the stack host in user mode; with the stack `host`, neither user_s nor system_s includes work that the host's kernel does on its own, such as for received packets
	System   *float64         `json:"system_s,omitempty"`       // CPU time of both in kernel mode
	Stack    *float64         `json:"stack_s,omitempty"`        // part of user_s and system_s that the stack host used, in steps of 10 ms; absent if the stack is inside the command
	Received *float64         `json:"bytes_received,omitempty"` // bytes received by the command over sockets of the stack
	Sent     *float64         `json:"bytes_sent,omitempty"`     // bytes sent by the command over sockets of the stack
	Retrans  *float64         `json:"retrans,omitempty"`        // TCP segments retransmitted
	Counters map[string]int64 `json:"counters,omitempty"`       // changes of the stack's counters, except those that are 0
	Source   string           `json:"source,omitempty"`         // after --merge: name of the source that contains the run
}

// cpu returns the sum of user and system time.
func (r *Run) cpu() *float64 {
	if r.User == nil || r.System == nil {
		return nil
	}
	sum := *r.User + *r.System
	return &sum
}

// Metric is one quantity, summarised over a variant's runs.
type Metric struct {
	Name   string   `json:"name"`              // time_s, cpu_s, bytes_received, bytes_sent, retrans
	N      int      `json:"n"`                 // number of runs for which the value is known
	Median float64  `json:"median"`            // median of these runs
	Low    float64  `json:"quartile_1"`        // first quartile: a quarter of the values are lower
	High   float64  `json:"quartile_3"`        // third quartile: a quarter of the values are higher
	Min    float64  `json:"min"`               // smallest value
	Max    float64  `json:"max"`               // largest value
	Ratio  *float64 `json:"ratio,omitempty"`   // ratio of the median to that of the first variant
	P      *float64 `json:"p,omitempty"`       // probability that chance alone makes such a difference: Mann-Whitney's U test, two-sided
	Differ bool     `json:"differ"`            // the difference is significant: p is less than 0.05
	TooFew bool     `json:"too_few,omitempty"` // there are too few runs to tell a difference from chance
	values []float64
}

// metrics are the quantities that are compared.
var metrics = []struct {
	name string
	of   func(*Run) *float64
}{
	{"time_s", func(r *Run) *float64 { return r.Seconds }},
	{"cpu_s", (*Run).cpu},
	{"bytes_received", func(r *Run) *float64 { return r.Received }},
	{"bytes_sent", func(r *Run) *float64 { return r.Sent }},
	{"retrans", func(r *Run) *float64 { return r.Retrans }},
}

// Runner makes one run of a variant. It returns an error if no run is possible.
type Runner func(ctx context.Context, v *Variant) (Run, error)

// Compare runs the variants in turn, each after its warm-up runs. The order is A B, B A,
// A B, so that no variant always starts first. When ctx is done, Compare compares the
// runs so far. It calls next before each run.
func (c *Comparison) Compare(ctx context.Context, run Runner, next func(n, of int, v *Variant)) error {
	c.Started = time.Now()
	defer c.finish()
	order := make([]*Variant, len(c.Variants))
	for i := range c.Variants {
		c.Variants[i].Runs = []Run{}
		order[i] = &c.Variants[i]
	}
	n := 0
	for round := range c.Warmups + c.Rounds {
		for _, v := range order {
			if ctx.Err() != nil {
				c.Stopped = true
				return nil
			}
			next(n, (c.Warmups+c.Rounds)*len(order), v)
			n++
			r, err := run(ctx, v)
			if ctx.Err() != nil { // the last run was interrupted
				c.Stopped = true
				return nil
			}
			if err != nil {
				return fmt.Errorf("variant %q, run %d: %w", v.Name, n, err)
			}
			if r.Number = n; round >= c.Warmups || r.Failed {
				v.Runs = append(v.Runs, r)
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// Failed returns the number of failed runs, including warm-ups.
func (v *Variant) Failed() (n int) {
	for _, r := range v.Runs {
		if r.Failed {
			n++
		}
	}
	return n
}

// significance is the probability below which a difference counts as significant.
const significance = 0.05

// finish computes the metrics.
func (c *Comparison) finish() {
	for i := range c.Variants {
		v := &c.Variants[i]
		v.Metrics = []Metric{}
		for _, m := range metrics {
			var values []float64
			for k := range v.Runs {
				if x := m.of(&v.Runs[k]); x != nil && !v.Runs[k].Failed {
					values = append(values, *x)
				}
			}
			if len(values) > 0 {
				v.Metrics = append(v.Metrics, newMetric(m.name, values))
			}
		}
	}
	if len(c.Variants) == 0 {
		return
	}
	for i := range c.Variants[1:] {
		for k := range c.Variants[i+1].Metrics {
			m := &c.Variants[i+1].Metrics[k]
			if base := c.Variants[0].Metric(m.Name); base != nil {
				m.against(base)
			}
		}
	}
}

// Metric returns the metric called name, or nil if its value is unknown in all runs.
func (v *Variant) Metric(name string) *Metric {
	for i := range v.Metrics {
		if v.Metrics[i].Name == name {
			return &v.Metrics[i]
		}
	}
	return nil
}

func newMetric(name string, values []float64) Metric {
	slices.Sort(values)
	return Metric{
		Name: name, N: len(values), values: values,
		Median: quantile(values, 0.5), Low: quantile(values, 0.25), High: quantile(values, 0.75), Min: values[0], Max: values[len(values)-1],
	}
}

// quantile interpolates between the two nearest values (definition 7 of Hyndman and Fan,
// as in R and spreadsheets).
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	n := int(at)
	if n == len(sorted)-1 {
		return sorted[n]
	}
	return sorted[n] + (at-float64(n))*(sorted[n+1]-sorted[n])
}

// leastRuns is the number of runs per variant that the test needs to find any difference.
// With 3 runs each, even the most extreme order has a probability of 0.1.
const leastRuns = 4

// against compares a metric with the same metric of the first variant.
func (m *Metric) against(base *Metric) {
	if base.Median != 0 {
		ratio := m.Median / base.Median
		m.Ratio = &ratio
	}
	if m.TooFew = min(m.N, base.N) < leastRuns; m.TooFew {
		return
	}
	thresholds := benchmath.Thresholds{CompareAlpha: significance}
	test := benchmath.AssumeNothing.Compare(benchmath.NewSample(base.values, &thresholds), benchmath.NewSample(m.values, &thresholds))
	p := test.P
	if base.Min == m.Min && base.Max == m.Max && base.Min == base.Max { // all values are equal, which the test does not support
		p = 1
	}
	m.P, m.Differ = &p, p < significance
}
