// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
)

// captures checks that the interfaces to capture on will exist.
func (p *Plan) captures() error {
	var names []string
	for i := range p.Links {
		names = append(names, p.Links[i].Name)
	}
	names = append(names, "lo")
	for _, c := range p.Captures {
		for _, name := range c.Interfaces {
			if !slices.Contains(names, name) {
				return fmt.Errorf("--capture %s: %s: the run has no such interface; there are: %s", c.File, name, strings.Join(names, ", "))
			}
		}
	}
	return nil
}
