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
// advertisements, before it is up. A user who configured addresses expects no
// others, and no route that a neighbour announces.
func setRouters(ctx context.Context, conn *stackconn.Conn, device string, l *plan.Link, heed bool) error {
	if err := stacknet.MountFilesystems(ctx, conn); err != nil {
		return err
	}
	ra := map[string]string{"accept_ra": "0", "autoconf": "0"}
	switch {
	case heed:
		// accept_ra=2 also works with forwarding enabled. The delay of
		// up to a second before a solicitation is for machines that all
		// boot at once.
		ra = map[string]string{"accept_ra": "2", "autoconf": "0", "use_tempaddr": "0", "addr_gen_mode": "0", "router_solicitation_delay": "0"}
		if l.SLAAC {
			ra["autoconf"] = "1"
		}
	case !l.DetectDuplicates:
		// Duplicate address detection is unnecessary here: the
		// link-local address derives from an Ethernet address that no
		// other host has, unless it also has the same IP addresses. The
		// check would take a second or two. Programs that watch
		// addresses, such as browsers, abort what they started before
		// the address appeared.
		ra["accept_dad"] = "0"
	}
	for key, value := range ra {
		var missing *stacknet.SysctlError
		err := stacknet.SetSysctl(ctx, conn, "net/ipv6/conf/"+device+"/"+key, value)
		if errors.As(err, &missing) && !heed {
			continue // a stack without IPv6
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// heedRouters calls setRouters for a link's device or, once it exists, for
// the device of its VLAN.
func heedRouters(ctx context.Context, conn *stackconn.Conn, l *plan.Link, configured bool) error {
	heed := l.SLAAC || l.DHCP6
	switch {
	case !configured:
		return setRouters(ctx, conn, l.Name, l, heed && l.VLAN == 0)
	case l.VLAN != 0:
		return setRouters(ctx, conn, stackDevice(l), l, heed)
	}
	return nil
}
