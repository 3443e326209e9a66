// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Traffic control over rtnetlink: messages of struct tcmsg and TCA_* attributes
// (include/uapi/linux/rtnetlink.h, pkt_sched.h, pkt_cls.h). The existing libraries for
// this open sockets of the host.
const (
	sizeofTcMsg = 20

	tcaKind    = 1
	tcaOptions = 2
	tcaStats2  = 7

	tcaStatsQueue = 3 // TCA_STATS_QUEUE, gen_stats.h

	tcHRoot    = 0xffffffff
	tcHClsact  = 0xfffffff1
	tcHIngress = 0xfffffff2 // parent of a clsact's filters for incoming packets
	tcHEgress  = 0xfffffff3 // parent of those for outgoing packets
)

// tcmsg is struct tcmsg.
func tcmsg(index int, handle, parent, info uint32) []byte {
	b := make([]byte, sizeofTcMsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], handle)
	binary.NativeEndian.PutUint32(b[12:], parent)
	binary.NativeEndian.PutUint32(b[16:], info)
	return b
}

// tcObject is a queueing discipline or a filter as the stack reports it.
type tcObject struct {
	index                int
	handle, parent, info uint32
	kind                 string
	options              []byte
	drops                uint32 // packets that a queueing discipline has dropped
}

// tcObjects lists the objects that a request of the type typ returns: unix.RTM_GETQDISC or
// RTM_GETTFILTER.
func (r *rtnl) tcObjects(typ netlink.HeaderType, head []byte) ([]tcObject, error) {
	msgs, err := r.request(typ, netlink.Dump, head, func(*netlink.AttributeEncoder) {})
	if err != nil {
		return nil, err
	}
	var all []tcObject
	for _, m := range msgs {
		if len(m.Data) < sizeofTcMsg {
			continue
		}
		o := tcObject{
			index:  int(binary.NativeEndian.Uint32(m.Data[4:])),
			handle: binary.NativeEndian.Uint32(m.Data[8:]),
			parent: binary.NativeEndian.Uint32(m.Data[12:]),
			info:   binary.NativeEndian.Uint32(m.Data[16:]),
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[sizeofTcMsg:])
		if err != nil {
			return nil, err
		}
		for ad.Next() {
			switch ad.Type() {
			case tcaKind:
				o.kind = ad.String()
			case tcaOptions:
				o.options = ad.Bytes()
			case tcaStats2:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						// struct gnet_stats_queue: qlen, backlog, drops, ...
						if b := ad.Bytes(); ad.Type() == tcaStatsQueue && len(b) >= 12 {
							o.drops = binary.NativeEndian.Uint32(b[8:])
						}
					}
					return nil
				})
			}
		}
		if err := ad.Err(); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// qdiscs lists the queueing disciplines of all interfaces.
func (r *rtnl) qdiscs() ([]tcObject, error) {
	all, err := r.tcObjects(unix.RTM_GETQDISC, tcmsg(0, 0, 0, 0))
	if err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil, fmt.Errorf("the stack's kernel has no queueing disciplines (CONFIG_NET_SCHED): %w", err)
		}
		return nil, fmt.Errorf("listing the stack's queueing disciplines: %w", err)
	}
	return all, nil
}

// filters lists the filters of an interface that are attached to parent.
func (r *rtnl) filters(index int, parent uint32) ([]tcObject, error) {
	all, err := r.tcObjects(unix.RTM_GETTFILTER, tcmsg(index, 0, parent, 0))
	if err != nil {
		return nil, fmt.Errorf("listing the stack's traffic filters: %w", err)
	}
	return all, nil
}

// qdisc creates or changes a queueing discipline.
func (r *rtnl) qdisc(index int, handle, parent uint32, flags netlink.HeaderFlags, kind string, options func(*netlink.AttributeEncoder) error) error {
	_, err := r.request(unix.RTM_NEWQDISC, netlink.Acknowledge|netlink.Create|flags, tcmsg(index, handle, parent, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(tcaKind, kind)
		if options != nil {
			ae.Nested(tcaOptions, options)
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the stack has no queueing discipline %q: %w", kind, err)
	}
	return err
}

// delQdisc deletes a queueing discipline; it succeeds if there is none.
func (r *rtnl) delQdisc(index int, parent uint32) error {
	_, err := r.request(unix.RTM_DELQDISC, netlink.Acknowledge, tcmsg(index, 0, parent, 0), func(*netlink.AttributeEncoder) {})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// setQdisc sets the root queueing discipline of a device.
func setQdisc(index int, kind string) Request {
	return request(unix.RTM_NEWQDISC, netlink.Create|netlink.Replace, tcmsg(index, 0, tcHRoot, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(tcaKind, kind)
	})
}

// qdiscError explains the error of setQdisc.
func qdiscError(kind string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("the stack has no queueing discipline %q: %w", kind, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the queueing discipline %q requires parameters: %w", kind, err)
	}
	return fmt.Errorf("setting the queueing discipline %q: %w", kind, err)
}

// From pkt_cls.h, tc_act/tc_gact.h and tc_act/tc_mirred.h.
const (
	tcaMatchallAct = 2
	tcaActKind     = 1
	tcaActOptions  = 2
	tcaActParms    = 2 // TCA_GACT_PARMS, TCA_MIRRED_PARMS

	tcActShot     = 2
	tcActStolen   = 4
	tcaEgressDir  = 1  // TCA_EGRESS_REDIR
	sizeofGact    = 20 // struct tc_gact: index, capab, action, refcnt, bindcnt
	sizeofMirred  = 28 // struct tc_mirred: the same, eaction, ifindex
	mirredIfindex = 24
)

// filterInfo combines a filter's preference with the protocol number for all packets.
func filterInfo(pref uint16) uint32 {
	return uint32(pref)<<16 | uint32(bits.ReverseBytes16(unix.ETH_P_ALL))
}

// addFilter attaches a filter for all packets to parent. It redirects them to the
// interface target, or drops them if target is 0.
func (r *rtnl) addFilter(index int, parent uint32, pref uint16, handle uint32, target int) error {
	kind, parms := "gact", make([]byte, sizeofGact)
	binary.NativeEndian.PutUint32(parms[8:], tcActShot)
	if target != 0 {
		kind, parms = "mirred", make([]byte, sizeofMirred)
		binary.NativeEndian.PutUint32(parms[8:], tcActStolen)
		binary.NativeEndian.PutUint32(parms[20:], tcaEgressDir)
		binary.NativeEndian.PutUint32(parms[mirredIfindex:], uint32(target))
	}
	_, err := r.request(unix.RTM_NEWTFILTER, netlink.Acknowledge|netlink.Create|netlink.Excl, tcmsg(index, handle, parent, filterInfo(pref)), func(ae *netlink.AttributeEncoder) {
		ae.String(tcaKind, "matchall")
		ae.Nested(tcaOptions, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(tcaMatchallAct, func(ae *netlink.AttributeEncoder) error {
				ae.Nested(1, func(ae *netlink.AttributeEncoder) error {
					ae.String(tcaActKind, kind)
					ae.Nested(tcaActOptions, func(ae *netlink.AttributeEncoder) error {
						ae.Bytes(tcaActParms, parms)
						return nil
					})
					return nil
				})
				return nil
			})
			return nil
		})
	})
	return err
}

// delFilter deletes the filters with that preference.
func (r *rtnl) delFilter(index int, parent uint32, pref uint16) error {
	_, err := r.request(unix.RTM_DELTFILTER, netlink.Acknowledge, tcmsg(index, 0, parent, filterInfo(pref)), func(*netlink.AttributeEncoder) {})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// target returns the interface to which a filter of addFilter redirects; 0: it drops.
func (o tcObject) target() (index int) {
	// down finds a nested attribute.
	var down func(b []byte, path ...uint16)
	down = func(b []byte, path ...uint16) {
		if len(path) == 0 {
			if len(b) >= sizeofMirred {
				index = int(binary.NativeEndian.Uint32(b[mirredIfindex:]))
			}
			return
		}
		ad, err := netlink.NewAttributeDecoder(b)
		if err != nil {
			return
		}
		for ad.Next() {
			if ad.Type() == path[0] {
				down(ad.Bytes(), path[1:]...)
			}
		}
	}
	down(o.options, tcaMatchallAct, 1, tcaActOptions, tcaActParms)
	return index
}
