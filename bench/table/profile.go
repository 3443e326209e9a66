// SPDX-License-Identifier: Apache-2.0

package table

import (
	"slices"
	"strings"
)

// A Profile shows where the CPU time of one turn went.
type Profile struct {
	Key    Key     `json:"key"`
	Sample Sample  `json:"sample"` // what the turn gave
	Unit   string  `json:"unit"`   // of the parts: the sample's CPU time for each GB or operation
	Parts  []Part  `json:"parts"`  // what it is made of
	Idle   float64 `json:"idle"`   // the part of all CPUs' time in which they had nothing to do
	Count  int     `json:"count"`  // of perf's samples

	Busiest string  `json:"busiest"` // the program of the thread that used most
	Busy    float64 `json:"busy"`    // the part of a CPU's time that this thread used
}

// A Part is one use of CPU time.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Part is the value of a part, 0 if there is none.
func (p *Profile) Part(name string) float64 {
	for _, part := range p.Parts {
		if part.Name == name {
			return part.Value
		}
	}
	return 0
}

// Profile is the profile of a key, nil if there is none.
func (s *Set) Profile(k Key) *Profile {
	at := slices.IndexFunc(s.Profiles, func(p Profile) bool { return p.Key.String() == k.String() })
	if at < 0 {
		return nil
	}
	return &s.Profiles[at]
}

// CPUUnit is the unit of a sample's CPU time.
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
