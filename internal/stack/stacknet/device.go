// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// This file sets the properties of a device, as opposed to its addresses: MAC, MTU,
// group, queueing discipline, a VLAN device on top.

// device adds the configuration of l's device, and returns the device for the addresses.
func (s *steps) device(state LinkState, l Link) (LinkState, error) {
	for _, q := range setLink(state, l.MAC, l.MTU) {
		s.add(q, "setting it up%s", wanted(l))
	}
	if l.Group != state.Group {
		s.add(setGroup(state.Index, l.Group), "setting group %d", l.Group)
	}
	if l.Qdisc != "" {
		s.addWith(setQdisc(state.Index, l.Qdisc), func(err error) error { return qdiscError(l.Qdisc, err) })
	}
	if l.VLAN != 0 { // the device's index is needed
		if err := s.apply(); err != nil {
			return state, err
		}
		var err error
		if state, err = s.n.r.addVLAN(state, l); err != nil {
			return state, &LinkError{l.Name, fmt.Errorf("creating the device %s of VLAN %d: %w", l.Top(), l.VLAN, err)}
		}
	}
	for _, n := range l.Neigh {
		s.add(setNeighbour(state.Index, n), "adding the neighbour %v at %v", n.IP, n.MAC)
	}
	return state, nil
}

// setGroup puts a device into a group.
func setGroup(index, group int) Request {
	return request(unix.RTM_NEWLINK, 0, ifinfomsg(index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_GROUP, uint32(group))
	})
}

// iflaVlanID is IFLA_VLAN_ID, include/uapi/linux/if_link.h.
const iflaVlanID = 1

// addVLAN creates the device of l's VLAN on top of lower and sets it up, unless it
// exists.
func (r *rtnl) addVLAN(lower LinkState, l Link) (LinkState, error) {
	_, err := r.request(unix.RTM_NEWLINK, netlink.Acknowledge|netlink.Create|netlink.Excl, ifinfomsg(0, unix.IFF_UP, unix.IFF_UP), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, l.Top())
		ae.Uint32(unix.IFLA_LINK, uint32(lower.Index))
		if l.Group != 0 {
			ae.Uint32(unix.IFLA_GROUP, uint32(l.Group))
		}
		ae.Nested(unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) error {
			ae.String(unix.IFLA_INFO_KIND, "vlan")
			ae.Nested(unix.IFLA_INFO_DATA, func(ae *netlink.AttributeEncoder) error {
				ae.Uint16(iflaVlanID, uint16(l.VLAN))
				return nil
			})
			return nil
		})
	})
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return LinkState{}, err
	}
	states, err := r.links()
	if err != nil {
		return LinkState{}, err
	}
	state, ok := findLink(states, l.Top())
	if !ok {
		return state, syscall.ENODEV
	}
	return state, nil
}

// setNeighbour adds a permanent neighbour entry.
func setNeighbour(index int, n Neighbour) Request {
	// struct ndmsg, include/uapi/linux/neighbour.h.
	head := make([]byte, unix.SizeofNdMsg)
	head[0] = family(n.IP)
	binary.NativeEndian.PutUint32(head[4:], uint32(index))
	binary.NativeEndian.PutUint16(head[8:], unix.NUD_PERMANENT)
	return request(unix.RTM_NEWNEIGH, netlink.Create|netlink.Replace, head, func(ae *netlink.AttributeEncoder) {
		ae.Bytes(unix.NDA_DST, n.IP.AsSlice())
		ae.Bytes(unix.NDA_LLADDR, n.MAC)
	})
}
