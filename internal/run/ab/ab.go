// SPDX-License-Identifier: Apache-2.0

// Package ab compares variants of a run, such as two stacks: it runs a command with each
// in turns. It reports the cost of each run, medians, their spread, and whether a
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
	Command  []string  `json:"command"`  // that was run
	Started  time.Time `json:"started"`  // when the first run began
	Rounds   int       `json:"rounds"`   // runs of each variant that were wanted
	Warmups  int       `json:"warmups"`  // runs of each before, which do not count
	Stopped  bool      `json:"stopped"`  // it was interrupted: there are fewer runs
	Variants []Variant `json:"variants"` // in the order given; ratios are to the first
}

// Variant is one way to run the command.
type Variant struct {
	Name    string   `json:"name"`
	Flags   []string `json:"flags"`   // of lklrun, which it has and others have not
	Runs    []Run    `json:"runs"`    // in the order in which they were made, without warm-ups
	Metrics []Metric `json:"metrics"` // of the runs that went well
}

// Run is the cost of one run. Unknown values are absent.
type Run struct {
	Number   int              `json:"number"`                   // among all runs, from 1 on
	Status   int              `json:"status"`                   // of the command, as a shell has it
	Failed   bool             `json:"failed"`                   // it ended with another status than 0
	Words    string           `json:"words,omitempty"`          // of one that failed: what it wrote last to standard error
	Seconds  *float64         `json:"time_s,omitempty"`         // from the command's start to its end
	User     *float64         `json:"user_s,omitempty"`         // CPU time of the command and the stack host, outside the kernel; with the stack `host` what the host's kernel does by itself, as for packets that come in, is in neither
	System   *float64         `json:"system_s,omitempty"`       // CPU time inside the kernel
	Stack    *float64         `json:"stack_s,omitempty"`        // of both the stack host's, to 10 ms; not known where the stack is inside the command
	Received *float64         `json:"bytes_received,omitempty"` // by the command, through sockets of the stack
	Sent     *float64         `json:"bytes_sent,omitempty"`     // bytes sent
	Retrans  *float64         `json:"retrans,omitempty"`        // TCP segments that were sent again
	Counters map[string]int64 `json:"counters,omitempty"`       // by how much each of the stack's counters has changed
}

// cpu is user and system time.
func (r *Run) cpu() *float64 {
	if r.User == nil || r.System == nil {
		return nil
	}
	sum := *r.User + *r.System
	return &sum
}

// Metric is one number of a variant's runs.
type Metric struct {
	Name   string   `json:"name"`              // time_s, cpu_s, bytes_received, bytes_sent, retrans
	N      int      `json:"n"`                 // runs that know it
	Median float64  `json:"median"`            // of these
	Low    float64  `json:"quartile_1"`        // a quarter of them are below
	High   float64  `json:"quartile_3"`        // a quarter of them are above
	Min    float64  `json:"min"`               // the smallest
	Max    float64  `json:"max"`               // the largest
	Ratio  *float64 `json:"ratio,omitempty"`   // of the median to the first variant's
	P      *float64 `json:"p,omitempty"`       // that chance makes such a difference: Mann-Whitney's U test, two-sided
	Differ bool     `json:"differ"`            // P is less than 0.05
	TooFew bool     `json:"too_few,omitempty"` // so few runs that no difference could be told from chance
	values []float64
}

// metrics are the compared numbers, by name.
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

// Runner makes one run of a variant; an error means that no run is possible.
type Runner func(ctx context.Context, v *Variant) (Run, error)

// Compare runs the variants in turns, after one or more warm-up runs each. The order is A
// B, B A, A B, so that no variant always starts first. When ctx is done it compares the
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

// Failed is the number of failed runs, including warm-ups.
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

// Metric returns the metric with a name, or nil if no run knows it.
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

// quantile interpolates between the two nearest values (Hyndman and Fan's definition 7,
// as in R and spreadsheets).
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	n := int(at)
	if n == len(sorted)-1 {
		return sorted[n]
	}
	return sorted[n] + (at-float64(n))*(sorted[n+1]-sorted[n])
}

// leastRuns is the number of runs per variant that the test needs to find any difference:
// with 3 and 3, the most extreme order has a probability of 0.1.
const leastRuns = 4

// against compares a metric with that of the first variant.
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
	if base.Min == m.Min && base.Max == m.Max && base.Min == base.Max { // all values are equal, a case that the test does not cover
		p = 1
	}
	m.P, m.Differ = &p, p < significance
}
