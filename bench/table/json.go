// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// A file is the JSON form of a set: raw samples, and computed results for readers that
// do not compute them.
type file struct {
	Info  Info      `json:"info"`
	Notes []string  `json:"notes,omitempty"`
	Rows  []fileRow `json:"rows"`

	Profiles []Profile `json:"profiles,omitempty"`
}

type fileRow struct {
	Row
	Medians   Sample                `json:"medians"`
	Quartiles map[string][2]float64 `json:"quartiles"`
	ToHost    Sample                `json:"to_host,omitempty"` // median divided by the host's median
}

// Base is the default variant for comparisons.
const Base = "host"

// WriteJSON writes the set.
func (s *Set) WriteJSON(w io.Writer) error {
	f := file{Info: s.Info, Notes: s.Notes, Rows: []fileRow{}, Profiles: s.Profiles}
	for _, r := range s.rows {
		fr := fileRow{Row: *r, Medians: Sample{}, Quartiles: map[string][2]float64{}, ToHost: Sample{}}
		for _, u := range s.Units(r.Key) {
			fr.Medians[u], _ = s.Median(r.Key, u)
			lo, hi := s.Quartiles(r.Key, u)
			fr.Quartiles[u] = [2]float64{lo, hi}
			if ratio, ok := s.Ratio(r.Key, Base, u); ok && r.Key.Variant != Base {
				fr.ToHost[u] = ratio
			}
		}
		f.Rows = append(f.Rows, fr)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(f)
}

// ReadJSON reads the output of WriteJSON.
func ReadJSON(r io.Reader) (*Set, error) {
	var f file
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return nil, fmt.Errorf("a run's JSON: %w", err)
	}
	s := New()
	s.Info, s.Notes, s.Profiles = f.Info, f.Notes, f.Profiles
	for _, row := range f.Rows {
		for _, v := range row.Samples {
			s.Add(row.Key, v)
		}
	}
	return s, nil
}

// WriteBenchstat writes the set in the format of Go benchmarks, with one line for each
// sample. benchstat -col /variant reads this format.
func (s *Set) WriteBenchstat(w io.Writer) error {
	var b strings.Builder
	for _, l := range [][2]string{{"commit", s.Info.Commit}, {"form", s.Info.Form}, {"date", s.Info.Date}, {"kernel", s.Info.Kernel}, {"cpu", s.Info.CPU}, {"pkg", "github.com/lklrun/lklrun/bench"}} {
		if l[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", l[0], l[1])
		}
	}
	for _, r := range s.rows {
		for _, v := range r.Samples {
			fmt.Fprintf(&b, "Benchmark%s 1", word(r.Key.String()))
			for _, u := range v.units() {
				fmt.Fprintf(&b, " %g %s", v[u], word(u))
			}
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// word converts a text to a single word, capitalized like the names of benchmarks.
func word(s string) string {
	s = strings.Join(strings.Fields(s), "-")
	if strings.Contains(s, "/variant=") && s != "" {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}
