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
	if p.TLSKeys {
		p.Notes = append(p.Notes, "whoever can read "+p.keysIn()+" can decrypt the TLS connections of this run (--tls-keys)")
	}
	return nil
}

// keysIn names the files with the TLS secrets.
func (p *Plan) keysIn() string {
	var files []string
	for _, c := range p.Captures {
		if !c.Ring() {
			files = append(files, c.File)
		}
	}
	if len(files) == 0 {
		return "a file of `lklctl capture --tls-keys`"
	}
	return strings.Join(files, " or ")
}
