// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"

	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// setRouters makes a device of the stack process or ignore router
// advertisements. It must be called before the device is up. A user who
// configured addresses does not expect others, nor a route that a neighbour
// announces.
func setRouters(ctx context.Context, conn *stackconn.Conn, device string, l *plan.Link, acceptRAs bool) error {
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
	var all []stacknet.Sysctl
	for key, value := range ra {
		all = append(all, stacknet.Sysctl{Key: "net/ipv6/conf/" + device + "/" + key, Value: value})
	}
	for _, err := range stacknet.SetSysctls(ctx, conn, all) {
		var missing *stacknet.SysctlError
		if errors.As(err, &missing) && !acceptRAs {
			continue // the stack has no IPv6
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enableRouterAdvertisements calls setRouters for a link's device. If the link is configured, it
// calls setRouters for the link's VLAN device instead, if there is one.
func enableRouterAdvertisements(ctx context.Context, conn *stackconn.Conn, l *plan.Link, configured bool) error {
	acceptRAs := l.SLAAC || l.DHCP6
	switch {
	case !configured:
		return setRouters(ctx, conn, l.Name, l, acceptRAs && l.VLAN == 0)
	case l.VLAN != 0:
		return setRouters(ctx, conn, stackDevice(l), l, acceptRAs)
	}
	return nil
}
