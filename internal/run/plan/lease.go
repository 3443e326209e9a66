// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"
)

// LeaseLimit bounds the wait for the first addresses from the network.
const LeaseLimit = 10 * time.Second

// Leases reports whether the link gets addresses from its network.
func (l *Link) Leases() bool { return l.DHCP || l.DHCP6 || l.SLAAC }

// IPv6 reports whether the link has or will get IPv6 addresses.
func (l *Link) IPv6() bool {
	for _, a := range l.Addrs {
		if a.Addr().Is6() {
			return true
		}
	}
	return l.DHCP6 || l.SLAAC
}

// protocols names the protocols that give the link its addresses.
func (l *Link) protocols() string {
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
// needs one.
func (p *Plan) leaseStep(add func(kind Kind, link int, do, undo string)) {
	var all []string
	for i := range p.Links {
		if l := &p.Links[i]; l.Leases() {
			all = append(all, fmt.Sprintf("%s by %s", l.Name, l.protocols()))
		}
	}
	if len(all) > 0 {
		add(Lease, 0, fmt.Sprintf("get addresses: %s, for at most %v", strings.Join(all, ", "), LeaseLimit), "release them")
	}
}
