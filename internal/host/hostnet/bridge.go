// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// OpBridge removes a device from a bridge. New is the bridge's index.
const OpBridge = "bridge"

// CheckBridge returns an error if a tap cannot be added to the bridge called
// name. The tap need not exist; exists reports that. The result is the bridge's
// MTU.
func CheckBridge(ctx context.Context, name, tap string, exists bool) (mtu int, err error) {
	b, err := lookDevice(ctx, name)
	if err != nil {
		return 0, err
	}
	if b.Kind != "bridge" {
		return 0, fmt.Errorf("%s is no bridge: `ip link add %[1]s type bridge` makes one", name)
	}
	if !Capable(unix.CAP_NET_ADMIN) {
		return 0, fmt.Errorf("putting a tap into %s takes CAP_NET_ADMIN: run lklrun as root, or do that before", name)
	}
	if exists {
		d, err := lookDevice(ctx, tap)
		if err != nil {
			return 0, err
		}
		if d.Master != 0 && d.Master != b.Index {
			return 0, fmt.Errorf("tap %s is in another bridge: `ip link set %[1]s nomaster` takes it out", tap)
		}
	}
	return b.MTU, nil
}

// Member reports whether the tap is a port of a bridge, or of another device
// that receives its frames.
func (t *Tap) Member(ctx context.Context) (bool, error) {
	d, err := lookDevice(ctx, t.Name)
	return d.Master != 0, err
}

// Bridge adds the tap to a bridge for the duration of the run, unless it is in
// that bridge already.
func (t *Tap) Bridge(ctx context.Context, bridge string, journal func(Undo) error) error {
	b, err := lookDevice(ctx, bridge)
	if err != nil {
		return err
	}
	d, err := lookDevice(ctx, t.Name)
	if err != nil {
		return err
	}
	if d.Master == b.Index {
		return nil
	}
	u := Undo{Op: OpBridge, Name: t.Name, Ifindex: t.Ifindex, Netns: netnsID(), New: strconv.Itoa(b.Index)}
	if err := journal(u); err != nil {
		return err
	}
	if err := setMaster(ctx, t.Ifindex, b.Index); err != nil {
		return fmt.Errorf("putting %s into bridge %s: %w", t.Name, bridge, err)
	}
	return nil
}

func setMaster(ctx context.Context, ifindex, master int) error {
	return setLink(ctx, ifindex, 0, 0, func(ae *netlink.AttributeEncoder) { ae.Uint32(unix.IFLA_MASTER, uint32(master)) })
}

func undoBridge(ctx context.Context, u Undo) error {
	ifi, err := net.InterfaceByIndex(u.Ifindex)
	if err != nil || ifi.Name != u.Name {
		return nil // it is gone, and so no longer in the bridge
	}
	d, err := lookDevice(ctx, u.Name)
	if err != nil || strconv.Itoa(d.Master) != u.New {
		return nil // another process has moved it
	}
	return setMaster(ctx, u.Ifindex, 0)
}
