// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"strconv"
	"strings"
)

const maxPort = 1<<16 - 1

// portSet is a set of ports.
type portSet [(maxPort + 1) / 64]uint64

func (s *portSet) has(port int) bool { return s[port/64]>>(port%64)&1 != 0 }
func (s *portSet) add(port int)      { s[port/64] |= 1 << (port % 64) }

func (s *portSet) addAll(other *portSet) {
	for n := range s {
		s[n] |= other[n]
	}
}

func (s *portSet) removeAll(other *portSet) {
	for n := range s {
		s[n] &^= other[n]
	}
}

// parsePorts parses a list of ports and ranges in the kernel's format
// (proc_do_large_bitmap(), kernel/sysctl.c), such as 80,1000-2000.
func parsePorts(list string) (*portSet, error) {
	s := &portSet{}
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not a list of ports", list)
		}
		b, err := strconv.ParseUint(to, 10, 16)
		if err != nil || a > b {
			return nil, fmt.Errorf("%q is not a list of ports", list)
		}
		for p := a; p <= b; p++ {
			s.add(int(p))
		}
	}
	return s, nil
}

// String formats the set for parsePorts.
func (s *portSet) String() string {
	var parts []string
	for p := 0; p <= maxPort; p++ {
		if !s.has(p) {
			continue
		}
		first := p
		for p < maxPort && s.has(p+1) {
			p++
		}
		part := strconv.Itoa(first)
		if p > first {
			part += "-" + strconv.Itoa(p)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// set returns the ports as a set.
func (p Ports) set() *portSet {
	s := &portSet{}
	for n := int(p.First); n <= int(p.Last) && n > 0; n++ {
		s.add(n)
	}
	for _, l := range p.Listen {
		s.add(int(l))
	}
	return s
}
