// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"debug/elf"
	"fmt"
	"strings"
)

// infoSection is the section of a library in which the build script describes it.
const infoSection = ".lkl.info"

// Info describes a library. The build script writes it.
type Info struct {
	Kernel         string   // version
	Fixes, Missing []string // lklrun's patches for the kernel: contained, and not fitting
	Offers         Offers
}

// ReadInfo reads the description in the stack's library. It is empty if the library has
// none, because another build made it, or if the stack has no library.
func (s *Stack) ReadInfo() (*Info, error) {
	path := s.LibraryPath()
	if path == "" {
		return &Info{}, nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(infoSection)
	if section == nil {
		return &Info{}, nil
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: section %s: %w", path, infoSection, err)
	}
	return parseInfo(string(data)), nil
}

// parseInfo ignores the keys that it does not know.
func parseInfo(text string) *Info {
	i := &Info{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		switch key, value, _ := strings.Cut(line, "="); key {
		case "kernel":
			i.Kernel = value
		case "fix":
			i.Fixes = append(i.Fixes, value)
		case "missing":
			i.Missing = append(i.Missing, value)
		case "congestion":
			i.Offers.Congestion = append(i.Offers.Congestion, value)
		case "scheduler":
			i.Offers.Schedulers = append(i.Offers.Schedulers, value)
		case "qdisc":
			i.Offers.Qdiscs = append(i.Offers.Qdiscs, value)
		}
	}
	return i
}
