// SPDX-License-Identifier: Apache-2.0

package table

import (
	"slices"
	"strings"
)

// A Profile shows where the CPU time of one turn went.
type Profile struct {
	Key    Key     `json:"key"`
	Sample Sample  `json:"sample"` // result of the turn
	Unit   string  `json:"unit"`   // unit of the parts: the sample's CPU time per GB or operation
	Parts  []Part  `json:"parts"`  // parts of the CPU time
	Idle   float64 `json:"idle"`   // idle share of the time of all CPUs
	Count  int     `json:"count"`  // number of perf's samples

	Busiest string  `json:"busiest"` // program of the thread that used most CPU time
	Busy    float64 `json:"busy"`    // share of one CPU's time that this thread used
}

// A Part is one use of CPU time.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Part returns the value of a part, or 0 if there is none.
func (p *Profile) Part(name string) float64 {
	for _, part := range p.Parts {
		if part.Name == name {
			return part.Value
		}
	}
	return 0
}

// Profile returns the profile of a key, or nil if there is none.
func (s *Set) Profile(k Key) *Profile {
	at := slices.IndexFunc(s.Profiles, func(p Profile) bool { return p.Key.String() == k.String() })
	if at < 0 {
		return nil
	}
	return &s.Profiles[at]
}

// CPUUnit returns the unit of a sample's CPU time.
func CPUUnit(s Sample) (string, bool) {
	us := s.units()
	at := slices.IndexFunc(us, isCPU)
	if at < 0 {
		return "", false
	}
	return us[at], true
}

// isCPU reports whether a unit is CPU time: cpu-s/GB, cpu-µs/op.
func isCPU(unit string) bool { return strings.HasPrefix(unit, "cpu-") }
