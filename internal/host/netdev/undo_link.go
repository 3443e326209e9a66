// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OpDeleteLink deletes a network device.
const OpDeleteLink = "delete-link"

func undoDeleteLink(_ context.Context, u Undo) error {
	d, err := netlink.LinkByIndex(u.Ifindex)
	if err != nil || d.Attrs().Name != u.Name {
		return nil // a tap that no process has open vanishes by itself
	}
	if err := netlink.LinkDel(d); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}
