// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Tolerance is the accepted decrease of a ratio, relative to the recorded one.
const Tolerance = 0.15

// Ratios returns the medians of a run divided by the host's, for each key and unit.
// Only ratios can be compared between runs, because throughput varies between
// machines and over time. A higher ratio is always better: if less of a unit is
// better, the ratio is inverted.
func (s *Set) Ratios() map[string]float64 {
	out := map[string]float64{}
	for _, r := range s.rows {
		if r.Key.Variant == Base {
			continue
		}
		for _, u := range s.Units(r.Key) {
			if strings.HasPrefix(u, "µs-p") && u != "µs-p50" {
				continue // the extremes of a distribution always vary
			}
			v, ok := s.Ratio(r.Key, Base, u)
			if !ok || v <= 0 {
				continue
			}
			if !Higher(u) {
				v = 1 / v
			}
			out[r.Key.String()+" "+u] = v
		}
	}
	return out
}

// A record is a file of ratios, with a description of their run.
type record struct {
	Info   Info               `json:"info"`
	Ratios map[string]float64 `json:"ratios"`
}

// WriteRecord writes the ratios for a later Compare.
func (s *Set) WriteRecord(w io.Writer) error {
	r := record{Info: s.Info, Ratios: s.Ratios()}
	for k, v := range r.Ratios {
		r.Ratios[k] = float64(int(v*1000+0.5)) / 1000
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// A Fall is a ratio that is below the recorded one.
type Fall struct {
	Name          string
	Recorded, Now float64
}

// Compare compares the run's ratios with recorded ones. It returns those that fell by
// more than the tolerance, and the number of comparisons.
func (s *Set) Compare(recorded io.Reader) (falls []Fall, compared int, err error) {
	var r record
	if err := json.NewDecoder(recorded).Decode(&r); err != nil {
		return nil, 0, fmt.Errorf("recorded ratios: %w", err)
	}
	now := s.Ratios()
	for _, name := range slices.Sorted(maps.Keys(r.Ratios)) {
		v, ok := now[name]
		if !ok {
			continue
		}
		compared++
		if v < (1-Tolerance)*r.Ratios[name] {
			falls = append(falls, Fall{name, r.Ratios[name], v})
		}
	}
	return falls, compared, nil
}
