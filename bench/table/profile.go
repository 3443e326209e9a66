// SPDX-License-Identifier: Apache-2.0

package table

import (
	"slices"
	"strings"
)

// A Profile says where the CPU time of one turn went.
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

// A Part is one of the things that CPU time was spent on.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Part is the value of a part, 0 when there is none.
func (p *Profile) Part(name string) float64 {
	for _, part := range p.Parts {
		if part.Name == name {
			return part.Value
		}
	}
	return 0
}

// Profile is that of a key, nil when none was taken.
func (s *Set) Profile(k Key) *Profile {
	at := slices.IndexFunc(s.Profiles, func(p Profile) bool { return p.Key.String() == k.String() })
	if at < 0 {
		return nil
	}
	return &s.Profiles[at]
}

// CPUUnit is the unit of a sample that is CPU time of what was measured.
func CPUUnit(s Sample) (string, bool) {
	us := s.units()
	at := slices.IndexFunc(us, isCPU)
	if at < 0 {
		return "", false
	}
	return us[at], true
}

// isCPU says whether a unit is CPU time: cpu-s/GB, cpu-µs/op.
func isCPU(unit string) bool { return strings.HasPrefix(unit, "cpu-") }
