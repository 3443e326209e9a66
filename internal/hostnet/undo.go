// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// OpDeleteLink deletes a network device.
const OpDeleteLink = "delete-link"

// Undo takes back one step on the host. It is a line of the journal: another
// process, long after, must be able to tell from it alone whether what it finds
// is still the thing that was made.
type Undo struct {
	Op      string `json:"op"`
	Name    string `json:"name"`
	Ifindex int    `json:"ifindex"`
	Netns   string `json:"netns"` // as /proc/PID/ns/net reads
}

// String says what the undo does.
func (u Undo) String() string {
	switch u.Op {
	case OpDeleteLink:
		return "delete device " + u.Name
	}
	return u.Op + " " + u.Name
}

// undoLimit bounds the wait for the kernel's answer to one undo.
const undoLimit = 5 * time.Second

// Apply carries the undo out. What is undone already, or is no longer the thing
// that was made, is left alone without an error.
func (u Undo) Apply(ctx context.Context) error {
	if u.Op != OpDeleteLink {
		return fmt.Errorf("unknown undo %q", u.Op)
	}
	if here := netnsID(); u.Netns != here {
		return fmt.Errorf("%v: it is in network namespace %s, this is %s", u, u.Netns, here)
	}
	ifi, err := net.InterfaceByIndex(u.Ifindex)
	if err != nil || ifi.Name != u.Name {
		return nil // a tap without owner vanishes by itself
	}
	if err := deleteLink(ctx, u.Ifindex); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%v: %w", u, err)
	}
	return nil
}

// deleteLink is `ip link delete` by index: RTM_DELLINK with a struct ifinfomsg
// (linux/rtnetlink.h).
func deleteLink(ctx context.Context, ifindex int) error {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	limit := time.Now().Add(undoLimit)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	if err := c.SetDeadline(limit); err != nil {
		return err
	}
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(ifindex))
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_DELLINK, Flags: netlink.Request | netlink.Acknowledge},
		Data:   body,
	})
	return err
}
