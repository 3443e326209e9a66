// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// rtnlLimit is the default timeout for an answer.
const rtnlLimit = 5 * time.Second

// rtnl sends one request to the host's rtnetlink, in the current network
// namespace.
func rtnl(ctx context.Context, typ netlink.HeaderType, flags netlink.HeaderFlags, body []byte) ([]netlink.Message, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	limit, ok := ctx.Deadline()
	if !ok {
		limit = time.Now().Add(rtnlLimit)
	}
	if err := c.SetDeadline(limit); err != nil {
		return nil, err
	}
	return c.Execute(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | flags}, Data: body})
}

// dump requests all objects of a type and calls each for every one, with its
// attributes. size is the size of the struct before the attributes.
func dump(ctx context.Context, typ netlink.HeaderType, size int, each func(body []byte, attrs map[uint16][]byte)) error {
	msgs, err := rtnl(ctx, typ, netlink.Dump, make([]byte, size))
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if len(m.Data) < size {
			continue
		}
		list, err := netlink.UnmarshalAttributes(m.Data[size:])
		if err != nil {
			return err
		}
		attrs := map[uint16][]byte{}
		for _, a := range list {
			attrs[a.Type] = a.Data
		}
		each(m.Data, attrs)
	}
	return nil
}

// ifinfomsg builds a struct ifinfomsg (linux/rtnetlink.h) followed by
// attributes.
func ifinfomsg(index int, flags, change uint32, fill func(*netlink.AttributeEncoder)) ([]byte, error) {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	if fill == nil {
		return b, nil
	}
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	attrs, err := ae.Encode()
	return append(b, attrs...), err
}

// setLink changes a device of the host by RTM_NEWLINK.
func setLink(ctx context.Context, index int, flags, change uint32, fill func(*netlink.AttributeEncoder)) error {
	body, err := ifinfomsg(index, flags, change, fill)
	if err != nil {
		return err
	}
	_, err = rtnl(ctx, unix.RTM_NEWLINK, netlink.Acknowledge, body)
	return err
}

// device holds the information of rtnetlink about a device of the host.
type device struct {
	net.Interface
	Kind   string // "macvtap", "tun", "bridge" ...; empty: hardware
	Master int    // index of its bridge or other master
	Lower  int    // index of the device below
	Type   uint16 // ARPHRD_*
}

// lookDevice inspects the device called name in the current network namespace.
func lookDevice(ctx context.Context, name string) (device, error) {
	var d device
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return d, fmt.Errorf("there is no device %s here (`ip link` lists those that are)", name)
	}
	d.Interface = *ifi
	body, err := ifinfomsg(ifi.Index, 0, 0, nil)
	if err != nil {
		return d, err
	}
	msgs, err := rtnl(ctx, unix.RTM_GETLINK, 0, body)
	if err != nil {
		return d, fmt.Errorf("looking at device %s: %w", name, err)
	}
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		d.Type = binary.NativeEndian.Uint16(m.Data[2:])
		ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
		if err != nil {
			return d, fmt.Errorf("looking at device %s: %w", name, err)
		}
		for ad.Next() {
			switch ad.Type() {
			case unix.IFLA_MASTER:
				d.Master = int(ad.Uint32())
			case unix.IFLA_LINK:
				d.Lower = int(ad.Uint32())
			case unix.IFLA_LINKINFO:
				ad.Nested(func(nad *netlink.AttributeDecoder) error {
					for nad.Next() {
						if nad.Type() == unix.IFLA_INFO_KIND {
							d.Kind = nad.String()
						}
					}
					return nil
				})
			}
		}
		if err := ad.Err(); err != nil {
			return d, fmt.Errorf("looking at device %s: %w", name, err)
		}
	}
	return d, nil
}
