// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// linkStats are the fields of struct rtnl_link_stats64, all __u64, in order
// (include/uapi/linux/if_link.h). Older kernels have fewer.
var linkStats = []string{
	"rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
	"multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors",
	"rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors",
	"tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler", "rx_otherhost_dropped",
}

// Attributes of a link that are counters, in addition to IFLA_STATS64
// (include/uapi/linux/if_link.h).
var linkCounts = map[uint16]string{
	35: "carrier_changes",    // IFLA_CARRIER_CHANGES
	47: "carrier_up_count",   // IFLA_CARRIER_UP_COUNT
	48: "carrier_down_count", // IFLA_CARRIER_DOWN_COUNT
}

// readDevices reads the counters of all interfaces and of their qdiscs.
func readDevices(ctx context.Context, c *stackconn.Conn) (Set, error) {
	conn, err := c.Netlink(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	links, err := dump(conn, unix.RTM_GETLINK, unix.SizeofIfInfomsg)
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	var all Set
	for _, m := range links {
		if m.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		name, some, err := parseLink(m.Data)
		if err != nil {
			return nil, err
		}
		names[binary.NativeEndian.Uint32(m.Data[4:])] = name
		all = append(all, some...)
	}
	qdiscs, err := dump(conn, unix.RTM_GETQDISC, sizeofTcMsg)
	if errors.Is(err, syscall.EOPNOTSUPP) { // a stack without CONFIG_NET_SCHED
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

// dump requests all objects of a kind, with an empty header of size bytes.
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

// parseLink parses RTM_NEWLINK.
func parseLink(b []byte) (name string, some Set, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return "", nil, errForm
	}
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return "", nil, err
	}
	type field struct {
		name  string
		value uint64
	}
	var fields []field
	for ad.Next() {
		switch typ := ad.Type(); typ {
		case unix.IFLA_IFNAME:
			name = ad.String()
		case unix.IFLA_STATS64:
			stats := ad.Bytes()
			for i, f := range linkStats {
				if len(stats) >= 8*i+8 {
					fields = append(fields, field{f, binary.NativeEndian.Uint64(stats[8*i:])})
				}
			}
		default:
			if f, ok := linkCounts[typ]; ok {
				fields = append(fields, field{f, uint64(ad.Uint32())})
			}
		}
	}
	if err := ad.Err(); err != nil {
		return "", nil, err
	}
	for _, f := range fields {
		some = append(some, based(name+"."+f.name, "interface."+f.name, unsigned(f.value), Label{"interface", name}))
	}
	return name, some, nil
}
