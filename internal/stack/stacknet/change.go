// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sort"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Target selects the interfaces of a change: one interface, or all of a group.
type Target struct {
	Name  string
	Group int // if Name is empty
}

// String names the target.
func (t Target) String() string {
	if t.Name == "" {
		return fmt.Sprintf("group %d", t.Group)
	}
	return t.Name
}

// of finds the target's interfaces.
func (t Target) of(n *Netlink) ([]LinkState, error) {
	if t.Name != "" {
		if l, ok, err := n.Link(t.Name); ok || err != nil {
			return []LinkState{l}, err
		}
	}
	all, err := n.r.links()
	if err != nil {
		return nil, err
	}
	if t.Name != "" {
		return nil, fmt.Errorf("%s: the stack has no such interface, it has %s: %w", t.Name, someNames(all), ErrNoTarget)
	}
	all = slices.DeleteFunc(all, func(l LinkState) bool { return l.Group != t.Group })
	if len(all) == 0 {
		return nil, fmt.Errorf("%v: the group has no interfaces: %w", t, ErrNoTarget)
	}
	return all, nil
}

// ErrNoTarget is wrapped if no interface matches.
var ErrNoTarget = errors.New("see `lklctl link`")

// someNames lists as many interfaces as fit on a line.
func someNames(all []LinkState) string {
	const most = 12
	if len(all) <= most {
		return names(all)
	}
	return fmt.Sprintf("%s and %d more", names(all[:most]), len(all)-most)
}

// Change describes a change of an interface: nil or zero fields are left unchanged.
type Change struct {
	Up    *bool
	MTU   int
	MAC   net.HardwareAddr
	Group *int
}

// SetLink changes the target's interfaces and returns their number. One message changes a
// whole group (rtnl_group_changelink(), net/core/rtnetlink.c), except for the group's
// number, which requires one message per interface.
func SetLink(ctx context.Context, c *stackconn.Conn, t Target, ch Change) (int, error) {
	n, err := Open(ctx, c)
	if err != nil {
		return 0, err
	}
	defer n.Close()
	members, err := t.of(n)
	if err != nil {
		return 0, err
	}
	if t.Name == "" && ch.Group == nil {
		return len(members), changed(t, ch, n.r.changeLink(0, &t.Group, ch))
	}
	if len(members) == 1 {
		return 1, changed(t, ch, n.r.changeLink(members[0].Index, ch.Group, ch))
	}
	var all []Request
	for _, l := range members {
		all = append(all, request(unix.RTM_NEWLINK, 0, ch.head(l.Index), ch.attributes(ch.Group)))
	}
	return result(members, n.Do(all...))
}

func changed(t Target, ch Change, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EBUSY) && len(ch.MAC) > 0:
		return fmt.Errorf("changing the address of %v: the interface is up; run `lklctl link set %[1]v down` first, which also deletes its routes: %w", t, err)
	case errors.Is(err, syscall.EINVAL) && ch.MTU > 0:
		return fmt.Errorf("changing %v: mtu %d: %w", t, ch.MTU, err)
	}
	return fmt.Errorf("changing %v: %w", t, err)
}

func (ch *Change) head(index int) []byte {
	var flags, mask uint32
	if ch.Up != nil {
		mask = unix.IFF_UP
		if *ch.Up {
			flags = unix.IFF_UP
		}
	}
	return ifinfomsg(index, flags, mask)
}

func (ch *Change) attributes(group *int) func(*netlink.AttributeEncoder) {
	return func(ae *netlink.AttributeEncoder) {
		if len(ch.MAC) > 0 {
			ae.Bytes(unix.IFLA_ADDRESS, ch.MAC)
		}
		if ch.MTU > 0 {
			ae.Uint32(unix.IFLA_MTU, uint32(ch.MTU))
		}
		if group != nil {
			ae.Uint32(unix.IFLA_GROUP, uint32(*group))
		}
	}
}

// changeLink makes a change with one message. Without an index, group selects the
// interfaces.
func (r *rtnl) changeLink(index int, group *int, ch Change) error {
	_, err := r.request(unix.RTM_NEWLINK, netlink.Acknowledge, ch.head(index), ch.attributes(group))
	return err
}

// result returns the number of changed members, and the error of the first failed one, with
// its name.
func result(members []LinkState, errs []error) (changed int, first error) {
	for i, err := range errs {
		switch {
		case err == nil:
			changed++
		case first == nil:
			first = fmt.Errorf("%s: %w", members[i].Name, err)
		}
	}
	if failed := len(members) - changed; failed > 1 {
		first = fmt.Errorf("%d of %d interfaces failed; the first error: %w", failed, len(members), first)
	}
	return changed, first
}

// SetAddress adds p to the target's interfaces, or removes it, and returns the number of
// interfaces changed. The kernel has no such message for groups, so one message per
// interface is sent, in a batch.
func SetAddress(ctx context.Context, c *stackconn.Conn, t Target, p netip.Prefix, del bool) (int, error) {
	n, err := Open(ctx, c)
	if err != nil {
		return 0, err
	}
	defer n.Close()
	members, err := t.of(n)
	if err != nil {
		return 0, err
	}
	typ, flags := netlink.HeaderType(unix.RTM_NEWADDR), netlink.Create|netlink.Excl
	if del {
		typ, flags = unix.RTM_DELADDR, 0
	}
	var all []Request
	for _, l := range members {
		all = append(all, addressRequest(typ, flags, l.Index, p))
	}
	errs := n.Do(all...)
	for i, err := range errs {
		errs[i] = addressError(p, err)
	}
	return result(members, errs)
}

// addressError explains the error of a change of address p.
func addressError(p netip.Prefix, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("%v already exists: %w", p, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%v is not one of its addresses; `lklctl addr` lists them: %w", p, err)
	}
	return fmt.Errorf("%v: %w", p, err)
}

// AddDummies creates n dummy interfaces in a group, all down. Their names are made from
// format and a number.
func AddDummies(ctx context.Context, c *stackconn.Conn, format string, n, group int) error {
	nl, err := Open(ctx, c)
	if err != nil {
		return err
	}
	defer nl.Close()
	var all []Request
	for i := range n {
		all = append(all, request(unix.RTM_NEWLINK, netlink.Create|netlink.Excl, ifinfomsg(0, 0, 0), func(ae *netlink.AttributeEncoder) {
			ae.String(unix.IFLA_IFNAME, fmt.Sprintf(format, i))
			ae.Uint32(unix.IFLA_GROUP, uint32(group))
			ae.Nested(unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) error {
				ae.String(unix.IFLA_INFO_KIND, "dummy")
				return nil
			})
		}))
	}
	for i, err := range nl.Do(all...) {
		if err != nil {
			return fmt.Errorf("creating the interface %s: %w", fmt.Sprintf(format, i), err)
		}
	}
	return nil
}

// Sorted returns interfaces in the order in which they were created.
func Sorted(all []LinkState) []LinkState {
	all = slices.Clone(all)
	sort.Slice(all, func(i, j int) bool { return all[i].Index < all[j].Index })
	return all
}
