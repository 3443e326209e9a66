// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"context"
	"errors"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Devices reads only the counters of the interfaces and of their qdiscs.
func Devices(ctx context.Context, c *stackconn.Conn) (Set, error) {
	conn, err := c.Netlink(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	msgs, err := dump(conn, unix.RTM_GETLINK, unix.SizeofIfInfomsg)
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	var all Set
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		l, err := stacknet.ParseLink(m)
		if err != nil {
			return nil, err
		}
		names[uint32(l.Index)] = l.Name
		all = append(all, ofLink(l)...)
	}
	qdiscs, err := dump(conn, unix.RTM_GETQDISC, sizeofTcMsg)
	if errors.Is(err, syscall.EOPNOTSUPP) { // the stack has no CONFIG_NET_SCHED
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for _, m := range qdiscs {
		if m.Header.Type != unix.RTM_NEWQDISC {
			continue
		}
		some, err := parseQdisc(m.Data, names)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// dump requests all objects of one type. The request has an empty header of
// size bytes.
func dump(conn *netlink.Conn, typ netlink.HeaderType, size int) ([]netlink.Message, error) {
	msgs, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, size),
	})
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		if len(m.Data) < size && m.Header.Type != netlink.Error && m.Header.Type != netlink.Done {
			return nil, errForm
		}
	}
	return msgs, nil
}

// ofLink returns the counters of an interface.
func ofLink(l stacknet.LinkState) (all Set) {
	for _, c := range l.Counters {
		all = append(all, based(l.Name+"."+c.Name, "interface."+c.Name, unsigned(c.N), Label{"interface", l.Name}))
	}
	return all
}
