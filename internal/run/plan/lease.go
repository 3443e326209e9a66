// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"
)

// LeaseLimit bounds the wait for the first addresses from the network.
const LeaseLimit = 10 * time.Second

// protocols names the protocols that assign addresses to a link.
func protocols(l *Link) string {
	var all []string
	for _, p := range []struct {
		on   bool
		name string
	}{{l.DHCP, "DHCP"}, {l.DHCP6, "DHCPv6"}, {l.SLAAC, "SLAAC"}} {
		if p.on {
			all = append(all, p.name)
		}
	}
	return strings.Join(all, " and ")
}

// leaseStep adds a step that waits for the links' first addresses, if any link
// obtains addresses from its network.
func (p *Plan) leaseStep(add func(kind Kind, link int, do, undo string)) {
	var all []string
	for i := range p.Links {
		if l := &p.Links[i]; l.Leases() {
			all = append(all, fmt.Sprintf("%s by %s", l.Name, protocols(l)))
		}
	}
	if len(all) > 0 {
		add(Lease, 0, fmt.Sprintf("get addresses: %s, for at most %v", strings.Join(all, ", "), LeaseLimit), "release them")
	}
}
