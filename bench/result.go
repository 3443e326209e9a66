// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
)

// Verdicts about a target.
const (
	met    = "met"
	missed = "missed"
)

// A subject is what is measured.
type subject string

// The subjects; host is what the others are compared with.
const (
	host      subject = "host"
	bare      subject = "library"
	supervise subject = "lklrun"
	preload   subject = "preload"
)

// subjects are the columns of the table.
var subjects = []subject{host, bare, supervise, preload}

// A target is what a subject must reach: a ratio to the host's median, or a
// value of its own.
type target struct {
	of     subject
	ratio  bool
	atMost bool // else at least
	limit  float64
}

// String writes the target as a reader would.
func (t target) String() string {
	sign, of := ">=", ""
	if t.atMost {
		sign = "<="
	}
	if t.ratio {
		of = " of host"
	}
	return fmt.Sprintf("%s %s %.2f%s", t.of, sign, t.limit, of)
}

// A result is one row: what was measured, where, and each subject's values.
type result struct {
	What    string                `json:"what"`
	Unit    string                `json:"unit"`
	Where   string                `json:"where"` // placement: unpinned, one CPU
	Values  map[subject][]float64 `json:"values"`
	Medians map[subject]float64   `json:"medians"`
	Ratios  map[subject]float64   `json:"ratios"` // to the median of the host's, or of base
	Target  string                `json:"target,omitempty"`
	Verdict string                `json:"verdict,omitempty"`
	target  *target
	base    subject // of the ratios; empty: host
}

// finish computes what follows from the values.
func (r *result) finish() {
	r.Medians, r.Ratios = map[subject]float64{}, map[subject]float64{}
	for s, v := range r.Values {
		r.Medians[s] = median(v)
	}
	base := cmp.Or(r.base, host)
	for s, m := range r.Medians {
		if h := r.Medians[base]; s != base && h > 0 {
			r.Ratios[s] = m / h
		}
	}
	if r.target == nil {
		return
	}
	got, ok := r.Medians[r.target.of]
	if r.target.ratio {
		got, ok = r.Ratios[r.target.of]
	}
	r.Target, r.Verdict = r.target.String(), missed
	if ok && (r.target.atMost && got <= r.target.limit || !r.target.atMost && got >= r.target.limit) {
		r.Verdict = met
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// table prints the results for a person: each subject's median, and its ratio
// to the host's.
func table(w io.Writer, results []*result) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\tunit\tplacement\thost\tlibrary\tlklrun\tpreload\ttarget\t")
	for _, r := range results {
		cells := []string{r.What, r.Unit, r.Where}
		for _, s := range subjects {
			m, ok := r.Medians[s]
			switch ratio, has := r.Ratios[s]; {
			case !ok:
				cells = append(cells, "-")
			case has:
				cells = append(cells, fmt.Sprintf("%.*f (%.2f)", digits(m), m, ratio))
			default:
				cells = append(cells, fmt.Sprintf("%.*f", digits(m), m))
			}
		}
		verdict := ""
		if r.Target != "" {
			verdict = r.Target + ": " + r.Verdict
		}
		fmt.Fprintln(tw, strings.Join(append(cells, verdict), "\t")+"\t")
	}
	_ = tw.Flush() // to the terminal
	fmt.Fprintln(w, "\nmedians; in brackets the ratio to the host's")
}

// digits keeps three or so significant ones.
func digits(m float64) int {
	switch {
	case m >= 100:
		return 0
	case m >= 10:
		return 1
	}
	return 2
}
