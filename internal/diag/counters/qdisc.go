// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// sizeofTcMsg is the size of struct tcmsg (include/uapi/linux/rtnetlink.h). Its fields
// are family and padding, ifindex, handle, parent, info.
const sizeofTcMsg = 20

// Attributes for statistics, include/uapi/linux/gen_stats.h.
const (
	tcaStatsBasic = 1 // struct gnet_stats_basic
	tcaStatsQueue = 3 // struct gnet_stats_queue
	tcaStatsApp   = 4 // specific to the kind of qdisc
	tcaStatsPkt64 = 8
)

// xfield is a field of the statistics that are specific to a kind of qdisc. Fields with
// an empty name are skipped.
type xfield struct {
	name string
	size int // size in bytes
}

// xstats maps each kind of qdisc with specific statistics to its fields, in the order of
// its struct (include/uapi/linux/pkt_sched.h).
var xstats = map[string][]xfield{
	// struct tc_fq_qd_stats
	"fq": {
		{"gc_flows", 8}, {"", 8}, {"", 8}, {"throttled", 8}, {"flows_plimit", 8}, {"pkts_too_long", 8}, {"allocation_errors", 8},
		{"time_next_delayed_flow_ns", 8}, {"flows", 4}, {"inactive_flows", 4}, {"throttled_flows", 4}, {"unthrottle_latency_ns", 4},
		{"ce_mark", 8}, {"horizon_drops", 8}, {"horizon_caps", 8}, {"fastpath_packets", 8},
		{"band0_drops", 8}, {"band1_drops", 8}, {"band2_drops", 8}, {"band0_pkts", 4}, {"band1_pkts", 4}, {"band2_pkts", 4},
	},
	// struct tc_fq_codel_xstats of type TCA_FQ_CODEL_XSTATS_QDISC
	"fq_codel": {
		{"", 4}, {"maxpacket", 4}, {"drop_overlimit", 4}, {"ecn_mark", 4}, {"new_flow_count", 4}, {"new_flows_len", 4},
		{"old_flows_len", 4}, {"ce_mark", 4}, {"memory_used", 4}, {"drop_overmemory", 4},
	},
	// struct tc_codel_xstats
	"codel": {
		{"maxpacket", 4}, {"count", 4}, {"lastcount", 4}, {"ldelay_us", 4}, {"drop_next_us", 4}, {"drop_overlimit", 4},
		{"ecn_mark", 4}, {"dropping", 4}, {"ce_mark", 4},
	},
	// struct tc_red_xstats
	"red": {{"early", 4}, {"pdrop", 4}, {"other", 4}, {"marked", 4}},
}

// signedFields are the fields that may be negative.
var signedFields = map[string]bool{"time_next_delayed_flow_ns": true, "drop_next_us": true}

// parseQdisc parses RTM_NEWQDISC. A qdisc is named by its parent (root, ingress or its
// class), because several qdiscs of an interface may have the handle 0.
func parseQdisc(b []byte, names map[uint32]string) (Set, error) {
	if len(b) < sizeofTcMsg {
		return nil, errForm
	}
	iface, ok := names[binary.NativeEndian.Uint32(b[4:])]
	if !ok {
		return nil, nil // the interface was added between the two requests
	}
	handle, parent := binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
	ad, err := netlink.NewAttributeDecoder(b[sizeofTcMsg:])
	if err != nil {
		return nil, err
	}
	var kind string
	var stats []byte
	for ad.Next() {
		switch ad.Type() {
		case unix.TCA_KIND:
			kind = ad.String()
		case unix.TCA_STATS2:
			stats = ad.Bytes()
		}
	}
	if err := ad.Err(); err != nil {
		return nil, err
	}
	q := qdisc{
		prefix: fmt.Sprintf("%s.qdisc.%s.", iface, place(parent)),
		labels: []Label{{"interface", iface}, {"parent", place(parent)}, {"kind", kind}, {"handle", fmt.Sprintf("%x:", handle>>16)}},
	}
	return q.read(kind, stats)
}

// place formats a parent like tc(8).
func place(parent uint32) string {
	switch parent {
	case 0xFFFFFFFF: // TC_H_ROOT
		return "root"
	case 0xFFFFFFF1: // TC_H_INGRESS, TC_H_CLSACT
		return "ingress"
	}
	return fmt.Sprintf("%x:%x", parent>>16, parent&0xffff)
}

// qdisc collects the counters of one qdisc.
type qdisc struct {
	prefix string
	labels []Label
	all    Set
}

func (q *qdisc) put(name string, v Value) {
	q.all = append(q.all, based(q.prefix+name, "qdisc."+name, v, q.labels...))
}

func (q *qdisc) read(kind string, stats []byte) (Set, error) {
	ad, err := netlink.NewAttributeDecoder(stats)
	if err != nil {
		return nil, err
	}
	var basic, queue, app []byte
	var packets Value
	for ad.Next() {
		switch ad.Type() {
		case tcaStatsBasic:
			if basic = ad.Bytes(); len(basic) >= 12 && packets.IsZero() {
				packets = unsigned(uint64(binary.NativeEndian.Uint32(basic[8:])))
			}
		case tcaStatsPkt64: // present if 32 bits are not enough
			packets = unsigned(ad.Uint64())
		case tcaStatsQueue:
			queue = ad.Bytes()
		case tcaStatsApp:
			app = ad.Bytes()
		}
	}
	if err := ad.Err(); err != nil {
		return nil, err
	}
	if len(basic) >= 12 {
		q.put("bytes", unsigned(binary.NativeEndian.Uint64(basic)))
		q.put("packets", packets)
	}
	q.fields([]xfield{{"qlen", 4}, {"backlog", 4}, {"drops", 4}, {"requeues", 4}, {"overlimits", 4}}, queue)
	if kind != "fq_codel" || len(app) >= 4 && binary.NativeEndian.Uint32(app) == 0 {
		q.fields(xstats[kind], app)
	}
	return q.all, nil
}

// fields adds as many of the fields as b contains.
func (q *qdisc) fields(fields []xfield, b []byte) {
	for _, f := range fields {
		if len(b) < f.size {
			return
		}
		var v Value
		switch {
		case f.size == 8 && signedFields[f.name]:
			v = integer(int64(binary.NativeEndian.Uint64(b)))
		case f.size == 8:
			v = unsigned(binary.NativeEndian.Uint64(b))
		case signedFields[f.name]:
			v = integer(int64(int32(binary.NativeEndian.Uint32(b))))
		default:
			v = unsigned(uint64(binary.NativeEndian.Uint32(b)))
		}
		if f.name != "" {
			q.put(f.name, v)
		}
		b = b[f.size:]
	}
}
