// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
)

// publish assigns the published ports to the first interface that can open host
// ports for the stack.
func (p *Plan) publish() error {
	if len(p.Publish) == 0 {
		return nil
	}
	n := slices.IndexFunc(p.Links, func(l Link) bool { return l.Gateway != nil })
	if n < 0 {
		return fmt.Errorf("--publish %s: none of the interfaces leads through the host's ports; on %s the stack's ports are reached at its own address (--if user has ports of the host)",
			p.Publish[0], p.Links[0].Name)
	}
	p.Links[n].Gateway.Publish = p.Publish
	return nil
}
