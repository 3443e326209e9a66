// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// routerSettings returns the settings that make a device of the stack process or
// ignore router advertisements. They must be made before the device is up. A user
// who configured addresses does not expect others, nor a route that a neighbour
// announces. A stack without IPv6 cannot accept any.
func routerSettings(device string, l *plan.Link, acceptRAs bool) (all []stacknet.Sysctl) {
	ra := map[string]string{"accept_ra": "0", "autoconf": "0"}
	switch {
	case acceptRAs:
		// accept_ra=2 also works with forwarding enabled. The usual
		// delay of up to a second before a solicitation is meant for
		// machines that all boot at the same time.
		ra = map[string]string{"accept_ra": "2", "autoconf": "0", "use_tempaddr": "0", "addr_gen_mode": "0", "router_solicitation_delay": "0"}
		if l.SLAAC {
			ra["autoconf"] = "1"
		}
	case !l.DetectDuplicates:
		// Duplicate address detection is unnecessary here. The
		// link-local address derives from an Ethernet address. No other
		// host has the same Ethernet address, unless it also has the
		// same IP addresses. The detection would take a second or two.
		// Programs that watch addresses, such as browsers, abort their
		// requests when a new address appears.
		ra["accept_dad"] = "0"
	}
	for key, value := range ra {
		all = append(all, stacknet.Sysctl{Key: "net/ipv6/conf/" + device + "/" + key, Value: value, Optional: !acceptRAs, Quiet: true})
	}
	return all
}

// deviceSettings returns the settings of a link's device.
func deviceSettings(l *plan.Link) []stacknet.Sysctl {
	return routerSettings(l.Name, l, (l.SLAAC || l.DHCP6) && l.VLAN == 0)
}

// vlanSettings returns the settings of a link's VLAN device, if there is one. The device
// exists only after the link is configured.
func vlanSettings(l *plan.Link) []stacknet.Sysctl {
	if l.VLAN == 0 {
		return nil
	}
	return routerSettings(l.StackDevice(), l, l.SLAAC || l.DHCP6)
}
