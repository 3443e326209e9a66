// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"fmt"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OpBridge removes a device from a bridge. New is the bridge's index.
const OpBridge = "bridge"

// CheckBridge returns an error if a tap cannot be added to the bridge called
// name. The tap need not exist; exists reports whether it does. The result is
// the bridge's MTU.
func CheckBridge(name, tap string, exists bool) (mtu int, err error) {
	b, err := lookDevice(name)
	if err != nil {
		return 0, err
	}
	if b.Type() != "bridge" {
		return 0, fmt.Errorf("%s is not a bridge; create one with `ip link add %[1]s type bridge`", name)
	}
	if exists {
		d, err := lookDevice(tap)
		if err != nil {
			return 0, err
		}
		if in := d.Attrs().MasterIndex; in != 0 && in != b.Attrs().Index {
			return 0, fmt.Errorf("tap %s is in another bridge; remove it with `ip link set %[1]s nomaster`", tap)
		}
	}
	if !Capable(unix.CAP_NET_ADMIN) {
		err = rightsErrorf("attaching a tap to %s requires CAP_NET_ADMIN; run lklrun as root, or attach the tap in advance", name)
	}
	return b.Attrs().MTU, err
}

// Member reports whether the tap is a port of a bridge, or of another device
// that receives its frames.
func (t *Tap) Member() (bool, error) {
	d, err := lookDevice(t.Name)
	return err == nil && d.Attrs().MasterIndex != 0, err
}

// Bridge adds the tap to a bridge for the duration of the run, unless it is in
// that bridge already.
func (t *Tap) Bridge(bridge string, journal func(Undo) error) error {
	b, err := lookDevice(bridge)
	if err != nil {
		return err
	}
	d, err := lookDevice(t.Name)
	if err != nil {
		return err
	}
	master := b.Attrs().Index
	if d.Attrs().MasterIndex == master {
		return nil
	}
	u := Undo{Op: OpBridge, Name: t.Name, Ifindex: t.Ifindex, Netns: netnsID(), New: strconv.Itoa(master)}
	if err := journal(u); err != nil {
		return err
	}
	if err := netlink.LinkSetMasterByIndex(device(t.Ifindex), master); err != nil {
		return fmt.Errorf("attaching %s to bridge %s: %w", t.Name, bridge, err)
	}
	return nil
}

func undoBridge(_ context.Context, u Undo) error {
	d, err := netlink.LinkByIndex(u.Ifindex)
	if err != nil || d.Attrs().Name != u.Name {
		return nil // it is gone, and so no longer in the bridge
	}
	if strconv.Itoa(d.Attrs().MasterIndex) != u.New {
		return nil // another process has moved it
	}
	return netlink.LinkSetNoMaster(d)
}
