// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// LinkState is an interface as the stack reports it.
type LinkState struct {
	Index int
	Type  uint16 // unix.ARPHRD_*
	Name  string
	MAC   net.HardwareAddr
	MTU   int
	Group int
	Flags uint32 // unix.IFF_*
	Oper  uint8  // IF_OPER_*, RFC 2863
	Kind  string // of a virtual device: dummy, vlan, ...; empty if it has none

	Family uint8 // of a report about one family only: unix.AF_*
	RA     uint32
	HasRA  bool // RA is known (RAReceived and the other flags)

	Counters []LinkCounter // in the order of the kernel
}

// LinkCounter is a counter of an interface, from the stack's view.
type LinkCounter struct {
	Name string // rx_bytes
	N    uint64
}

// Counter returns the counter called name; ok is false if the stack does not have it.
func (l LinkState) Counter(name string) (n uint64, ok bool) {
	for _, c := range l.Counters {
		if c.Name == name {
			return c.N, true
		}
	}
	return 0, false
}

// Up says whether the interface is up.
func (l LinkState) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// Loopback reports whether the interface is a loopback device.
func (l LinkState) Loopback() bool { return l.Flags&unix.IFF_LOOPBACK != 0 }

// Carries reports whether the interface is up and has carrier.
func (l LinkState) Carries() bool {
	const carries = unix.IFF_UP | unix.IFF_LOWER_UP
	return l.Flags&carries == carries
}

// linkStats are the fields of struct rtnl_link_stats64, all __u64, in order
// (include/uapi/linux/if_link.h). Older kernels have fewer.
var linkStats = []string{
	"rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
	"multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors",
	"rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors",
	"tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler", "rx_otherhost_dropped",
}

// linkCounts are the attributes of a link that are counters, in addition to IFLA_STATS64.
var linkCounts = map[uint16]string{
	unix.IFLA_CARRIER_CHANGES:    "carrier_changes",
	unix.IFLA_CARRIER_UP_COUNT:   "carrier_up_count",
	unix.IFLA_CARRIER_DOWN_COUNT: "carrier_down_count",
}

var errLink = errors.New("not a link message")

// ParseLink parses RTM_NEWLINK or RTM_DELLINK, in an answer or in a report of a change.
func ParseLink(m netlink.Message) (LinkState, error) {
	if m.Header.Type != unix.RTM_NEWLINK && m.Header.Type != unix.RTM_DELLINK || len(m.Data) < unix.SizeofIfInfomsg {
		return LinkState{}, errLink
	}
	l := LinkState{
		Family: m.Data[0],
		Type:   binary.NativeEndian.Uint16(m.Data[2:]),
		Index:  int(int32(binary.NativeEndian.Uint32(m.Data[4:]))),
		Flags:  binary.NativeEndian.Uint32(m.Data[8:]),
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
	if err != nil {
		return LinkState{}, err
	}
	for ad.Next() {
		l.attribute(ad)
	}
	return l, ad.Err()
}

func (l *LinkState) attribute(ad *netlink.AttributeDecoder) {
	switch typ := ad.Type(); typ {
	case unix.IFLA_IFNAME:
		l.Name = ad.String()
	case unix.IFLA_ADDRESS:
		l.MAC = net.HardwareAddr(ad.Bytes())
	case unix.IFLA_MTU:
		l.MTU = int(ad.Uint32())
	case unix.IFLA_GROUP:
		l.Group = int(ad.Uint32())
	case unix.IFLA_OPERSTATE:
		l.Oper = ad.Uint8()
	case unix.IFLA_STATS64:
		stats := ad.Bytes()
		for i, name := range linkStats {
			if len(stats) >= 8*i+8 {
				l.Counters = append(l.Counters, LinkCounter{name, binary.NativeEndian.Uint64(stats[8*i:])})
			}
		}
	case unix.IFLA_LINKINFO:
		inside(ad, unix.IFLA_INFO_KIND, func(ad *netlink.AttributeDecoder) { l.Kind = ad.String() })
	case unix.IFLA_PROTINFO: // the IPv6 view of the device
		if l.Family == unix.AF_INET6 {
			inside(ad, unix.IFLA_INET6_FLAGS, l.inet6)
		}
	case unix.IFLA_AF_SPEC:
		if l.Family == unix.AF_UNSPEC {
			inside(ad, unix.AF_INET6, func(ad *netlink.AttributeDecoder) { inside(ad, unix.IFLA_INET6_FLAGS, l.inet6) })
		}
	default:
		if name, ok := linkCounts[typ]; ok {
			l.Counters = append(l.Counters, LinkCounter{name, uint64(ad.Uint32())})
		}
	}
}

func (l *LinkState) inet6(ad *netlink.AttributeDecoder) { l.RA, l.HasRA = ad.Uint32(), true }

// inside calls do for the attribute typ that is nested in the present one.
func inside(ad *netlink.AttributeDecoder, typ uint16, do func(*netlink.AttributeDecoder)) {
	ad.Nested(func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() == typ {
				do(ad)
			}
		}
		return nil
	})
}

// parseLinks parses the answer to RTM_GETLINK.
func parseLinks(msgs []netlink.Message) ([]LinkState, error) {
	var links []LinkState
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		l, err := ParseLink(m)
		if err != nil {
			return nil, fmt.Errorf("listing the stack's interfaces: %w", err)
		}
		links = append(links, l)
	}
	return links, nil
}
