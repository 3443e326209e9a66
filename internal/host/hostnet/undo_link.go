// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"errors"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// OpDeleteLink deletes a network device.
const OpDeleteLink = "delete-link"

func undoDeleteLink(ctx context.Context, u Undo) error {
	ifi, err := net.InterfaceByIndex(u.Ifindex)
	if err != nil || ifi.Name != u.Name {
		return nil // a tap that no process has open vanishes by itself
	}
	if err := deleteLink(ctx, u.Ifindex); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// deleteLink is the equivalent of `ip link delete` by index: RTM_DELLINK with a
// struct ifinfomsg (linux/rtnetlink.h).
func deleteLink(ctx context.Context, ifindex int) error {
	body, err := ifinfomsg(ifindex, 0, 0, nil)
	if err != nil {
		return err
	}
	_, err = rtnl(ctx, unix.RTM_DELLINK, netlink.Acknowledge, body)
	return err
}
