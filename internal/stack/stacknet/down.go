// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// SetDown sets the interface called name down, as `ip link set NAME down` does: packets
// for it fail with ENETUNREACH. It succeeds if there is no such interface.
func SetDown(ctx context.Context, c *stackconn.Conn, name string) error {
	up := false
	if _, err := SetLink(ctx, c, Target{Name: name}, Change{Up: &up}); err != nil && !errors.Is(err, ErrNoTarget) {
		return err
	}
	return nil
}

// SetCarrier turns the carrier of the interface called name off or on (`ip link set NAME
// carrier off`). It returns EOPNOTSUPP for devices whose carrier is detected. It succeeds
// if there is no such interface.
func SetCarrier(ctx context.Context, c *stackconn.Conn, name string, on bool) error {
	n, err := Open(ctx, c)
	if err != nil {
		return err
	}
	defer n.Close()
	l, ok, err := n.Link(name)
	if err != nil || !ok {
		return err
	}
	return n.SetCarrier(l, on)
}

// SetCarrier turns the carrier of an interface off or on.
func (n *Netlink) SetCarrier(l LinkState, on bool) error {
	carrier := uint8(0)
	if on {
		carrier = 1
	}
	_, err := n.r.request(unix.RTM_NEWLINK, netlink.Acknowledge, ifinfomsg(l.Index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint8(unix.IFLA_CARRIER, carrier)
	})
	return err
}
