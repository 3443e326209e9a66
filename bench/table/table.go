// SPDX-License-Identifier: Apache-2.0

// Package table holds the results of a benchmark run: samples by key, their medians and
// spread, and whether targets are met. It performs no I/O of its own.
package table

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Params distinguishes the rows of one measurement: dir=send, size=64.
type Params map[string]string

// String formats the parameters, sorted by name: dir=send/size=64.
func (p Params) String() string {
	names := make([]string, 0, len(p))
	for n := range p {
		names = append(names, n)
	}
	sort.Strings(names)
	for i, n := range names {
		names[i] = n + "=" + p[n]
	}
	return strings.Join(names, "/")
}

// A Key identifies a measurement: its scenario, its row and its variant.
type Key struct {
	Scenario  string `json:"scenario"`
	What      string `json:"what"`
	Params    Params `json:"params,omitempty"`
	Placement string `json:"placement"`
	Variant   string `json:"variant"`
}

// String returns the same text for equal keys.
func (k Key) String() string {
	return k.Row() + "/variant=" + k.Variant
}

// Row returns the key without its variant. Variants are compared within a row.
func (k Key) Row() string {
	s := k.Scenario + "/" + k.What
	if len(k.Params) > 0 {
		s += "/" + k.Params.String()
	}
	return s + "/placement=" + k.Placement
}

// With returns the key of another variant in the same row.
func (k Key) With(variant string) Key {
	k.Variant = variant
	return k
}

// A Sample is the result of one repetition: a value for each unit.
type Sample map[string]float64

// units lists a sample's units: results first, then costs.
func (s Sample) units() []string {
	us := make([]string, 0, len(s))
	for u := range s {
		us = append(us, u)
	}
	sort.Slice(us, func(i, j int) bool {
		ci, cj := isCPU(us[i]), isCPU(us[j])
		if ci != cj {
			return cj
		}
		return us[i] < us[j]
	})
	return us
}

// Higher reports whether a higher value is better for a unit.
func Higher(unit string) bool {
	switch unit {
	case "Gbit/s", "Mbit/s", "1/s", "ratio":
		return true
	}
	return strings.HasPrefix(unit, "fraction")
}

// A Row contains the samples of one key.
type Row struct {
	Key     Key      `json:"key"`
	Samples []Sample `json:"samples"`
}

// A Set contains the samples of one run. Keys are ordered by their first sample.
type Set struct {
	Info  Info
	Notes []string // reasons for missing measurements
	// Failed contains the notes about failures.
	Failed []string
	// Profiles contains the profiles of the run. Each covers one turn.
	Profiles []Profile
	rows     []*Row
	index    map[string]*Row
}

// Info describes a run.
type Info struct {
	Date    string             `json:"date"` // start of the run, in RFC 3339
	Form    string             `json:"form"`
	Commit  string             `json:"commit"`
	Commits map[string]string  `json:"commits,omitempty"` // commits of scenarios that were measured at another commit (Join)
	Kernel  string             `json:"kernel"`            // the host's kernel
	Stack   string             `json:"stack"`             // the kernel of the stack's library
	System  string             `json:"system"`
	CPU     string             `json:"cpu"`
	CPUs    int                `json:"cpus"`
	Memory  string             `json:"memory"`
	CPUTime string             `json:"cpu_time"` // source of the CPU time
	Seconds map[string]float64 `json:"seconds"`  // duration of each scenario
}

// New makes an empty set.
func New() *Set {
	return &Set{Info: Info{Seconds: map[string]float64{}}, index: map[string]*Row{}}
}

// Add adds a sample to its key.
func (s *Set) Add(k Key, v Sample) {
	r := s.index[k.String()]
	if r == nil {
		r = &Row{Key: k}
		s.index[k.String()] = r
		s.rows = append(s.rows, r)
	}
	r.Samples = append(r.Samples, v)
}

// Join adds the scenarios that another run on the same machine has measured. It adds a
// scenario only as a whole, because turns of two runs cannot be compared. It adds
// results of another commit only if this run has not measured the scenario, and records
// that commit in Info.Commits.
func (s *Set) Join(other *Set) error {
	a, b := s.Info, other.Info
	for _, f := range []struct{ what, here, there string }{
		{"kernel", a.Kernel, b.Kernel}, {"processor", a.CPU, b.CPU}, {"form", a.Form, b.Form},
	} {
		if f.here != f.there {
			return fmt.Errorf("another run: its %s is %s, here it is %s", f.what, f.there, f.here)
		}
	}
	same, have := a.Commit == b.Commit, map[string]bool{}
	for name := range b.Seconds {
		have[name] = len(s.Keys(name)) > 0
		if have[name] && same {
			return fmt.Errorf("another run, which has measured %s too", name)
		}
	}
	for _, r := range other.rows {
		if have[r.Key.Scenario] {
			continue
		}
		for _, v := range r.Samples {
			s.Add(r.Key, v)
		}
		if commit := cmp.Or(b.Commits[r.Key.Scenario], b.Commit); commit != a.Commit {
			if s.Info.Commits == nil {
				s.Info.Commits = map[string]string{}
			}
			s.Info.Commits[r.Key.Scenario] = commit
		}
	}
	for name, seconds := range b.Seconds {
		if !have[name] {
			s.Info.Seconds[name] += seconds // times that belong to no scenario occur in both runs
		}
	}
	if same {
		s.Info.Date = min(a.Date, b.Date)
	}
	for _, n := range other.Notes {
		if scenario, _, _ := strings.Cut(strings.TrimPrefix(n, "profile of "), "/"); !have[scenario] {
			s.Notes = append(s.Notes, n)
		}
	}
	for _, p := range other.Profiles {
		if !have[p.Key.Scenario] {
			s.Profiles = append(s.Profiles, p)
		}
	}
	return nil
}

// Keys returns the keys of a scenario, or all keys for "".
func (s *Set) Keys(scenario string) []Key {
	var keys []Key
	for _, r := range s.rows {
		if scenario == "" || r.Key.Scenario == scenario {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// Turns returns the maximum number of samples of a scenario's rows.
func (s *Set) Turns(scenario string) int {
	n := 0
	for _, k := range s.Keys(scenario) {
		n = max(n, len(s.index[k.String()].Samples))
	}
	return n
}

// Units returns all units that occur in the samples of a key.
func (s *Set) Units(k Key) []string {
	return s.any(k).units()
}

// any returns a sample that contains the units of all samples of a key, without
// meaningful values.
func (s *Set) any(k Key) Sample {
	all := Sample{}
	if r := s.index[k.String()]; r != nil {
		for _, v := range r.Samples {
			for u := range v {
				all[u] = 0
			}
		}
	}
	return all
}

// HasCPU reports whether a key has CPU time.
func (s *Set) HasCPU(k Key) bool {
	_, ok := CPUUnit(s.any(k))
	return ok
}

// Values returns a key's values in one unit, in the order of measurement.
func (s *Set) Values(k Key, unit string) []float64 {
	r := s.index[k.String()]
	if r == nil {
		return nil
	}
	var vs []float64
	for _, v := range r.Samples {
		if x, ok := v[unit]; ok {
			vs = append(vs, x)
		}
	}
	return vs
}

// Median returns the median of a key's values, and false if there are none.
func (s *Set) Median(k Key, unit string) (float64, bool) {
	vs := s.Values(k, unit)
	return quantile(vs, 0.5), len(vs) > 0
}

// Quartiles returns the quartiles of a key's values. The middle half of the values
// is between them.
func (s *Set) Quartiles(k Key, unit string) (lo, hi float64) {
	vs := s.Values(k, unit)
	return quantile(vs, 0.25), quantile(vs, 0.75)
}

// Ratio returns the key's median divided by the median of the base variant in the
// same row.
func (s *Set) Ratio(k Key, base, unit string) (float64, bool) {
	return s.over(k, k.With(base), unit)
}

func (s *Set) over(k, base Key, unit string) (float64, bool) {
	a, ok := s.Median(k, unit)
	b, has := s.Median(base, unit)
	if !ok || !has || b == 0 {
		return 0, false
	}
	return a / b, true
}

// quantile interpolates between the two nearest values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	vs := slices.Sorted(slices.Values(values))
	at := q * float64(len(vs)-1)
	i := int(at)
	if i+1 >= len(vs) {
		return vs[len(vs)-1]
	}
	return vs[i] + (at-float64(i))*(vs[i+1]-vs[i])
}
