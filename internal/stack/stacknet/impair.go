// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// This file implements impairments of an interface's packets, separately for each
// direction. They leave the interface's own queueing discipline alone:
//
//	eth1 ── clsact ──┬─ pref 75: drop                                   (Drop)
//	                 └─ pref 76: redirect ─► eth1-out: tbf ─► netem ─► eth1
//
// A clsact has filters for incoming and outgoing packets (tc-bpf(8)). An intermediate
// functional block (drivers/net/ifb.c) is a device: packets redirected to it pass its
// queueing discipline, then continue where they came from. Its token bucket (tbf) has a
// rate that no traffic reaches. It only splits the large packets of TCP's segmentation
// offload into packets of wire size (tbf_segment(), net/sched/sch_tbf.c), since netem
// would drop or count each of them as one packet.
//
// Outgoing packets pass netem before the interface's own queue.

// Preferences of the filters, the smaller one first. The handles tell whether the clsact
// existed before.
const (
	prefDrop     = Protocol - 1
	prefRedirect = Protocol

	handleOurs   = 1
	handleTheirs = 2
)

// Way is a direction from the view of the stack's interface.
type Way int

// The directions.
const (
	In Way = iota
	Out
	ways
)

// String returns the name of the direction.
func (w Way) String() string { return [...]string{"in", "out"}[w] }

func (w Way) parent() uint32 { return [...]uint32{tcHIngress, tcHEgress}[w] }

// Impairment describes what happens to the packets of one direction.
type Impairment struct {
	Drop  bool // all are dropped
	Netem Netem

	Dropped uint32 // packets dropped by Netem since it exists; read-only
}

// None reports whether packets pass unchanged.
func (e Netem) None() bool {
	e.Limit, e.Seed = 0, 0
	return e == Netem{}
}

// impaired is an Impairment with the objects that implement it.
type impaired struct {
	Impairment
	clsact bool // there is a clsact
	ours   bool // and we have made it
	ifb    int  // index of the block; 0: none
	has    [2]bool
}

// Impairments returns the impairments of an interface, by direction.
func (n *Netlink) Impairments(l LinkState) ([2]Impairment, error) {
	all, err := n.impaired(l)
	return [2]Impairment{all[In].Impairment, all[Out].Impairment}, err
}

func (n *Netlink) impaired(l LinkState) (all [ways]impaired, err error) {
	qdiscs, err := n.r.qdiscs()
	if err != nil {
		return all, err
	}
	if !slices.ContainsFunc(qdiscs, func(q tcObject) bool { return q.index == l.Index && q.kind == "clsact" }) {
		return all, nil
	}
	for w := range ways {
		i := &all[w]
		i.clsact = true
		filters, err := n.r.filters(l.Index, w.parent())
		if err != nil {
			return all, err
		}
		for _, f := range filters {
			if f.kind != "matchall" || f.handle == 0 { // the list begins with the head of the chain
				continue
			}
			switch f.info >> 16 {
			case prefDrop:
				i.Drop, i.has[0] = true, true
			case prefRedirect:
				i.has[1], i.ifb = true, f.target()
			default:
				continue
			}
			all[In].ours = all[In].ours || f.handle == handleOurs
		}
		for _, q := range qdiscs {
			if i.ifb != 0 && q.index == i.ifb && q.kind == "netem" {
				i.Netem, _ = parseNetem(q.options)
				i.Dropped = q.drops
			}
		}
	}
	all[Out].ours = all[In].ours
	return all, nil
}

// Impair sets the impairments of an interface, by direction.
func (n *Netlink) Impair(l LinkState, want [2]Impairment) (err error) {
	have, err := n.impaired(l)
	if err != nil {
		return err
	}
	handle, keep := uint32(handleTheirs), false
	if !have[In].clsact || have[In].ours {
		handle = handleOurs
	}
	for w := range ways {
		keep = keep || want[w].Drop || !want[w].Netem.None()
	}
	if keep && !have[In].clsact {
		err := n.r.qdisc(l.Index, 0xffff0000, tcHClsact, netlink.Excl, "clsact", nil)
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s has a queueing discipline `ingress`, which conflicts with a drill; delete it with `lklctl exec -- tc qdisc del dev %[1]s ingress`: %w", l.Name, err)
		}
		if err != nil {
			return fmt.Errorf("preparing %s: %w", l.Name, err)
		}
		defer func() {
			if err != nil { // this also deletes its filters
				err = errors.Join(err, n.r.delQdisc(l.Index, tcHClsact))
			}
		}()
	}
	for w := range ways {
		if err := n.impair(l, w, have[w], want[w], handle); err != nil {
			return fmt.Errorf("%s, direction %v: %w", l.Name, w, err)
		}
	}
	if !keep && have[In].ours {
		if err := n.r.delQdisc(l.Index, tcHClsact); err != nil {
			return fmt.Errorf("%s: removing the filters: %w", l.Name, err)
		}
	}
	return nil
}

// impair changes one direction. The drop filter is added first and removed last, so that
// no packet slips through in between.
func (n *Netlink) impair(l LinkState, w Way, have impaired, want Impairment, handle uint32) error {
	if want.Drop && !have.has[0] {
		if err := n.r.addFilter(l.Index, w.parent(), prefDrop, handle, 0); err != nil {
			return fmt.Errorf("starting to drop packets: %w", err)
		}
	}
	switch {
	case !want.Netem.None():
		if err := n.redirect(l, w, have, want.Netem, handle); err != nil {
			return err
		}
	case have.has[1]:
		if err := n.r.delFilter(l.Index, w.parent(), prefRedirect); err != nil {
			return fmt.Errorf("stopping the redirection of packets: %w", err)
		}
		if have.ifb != 0 {
			if err := n.delLink(have.ifb); err != nil {
				return err
			}
		}
	}
	if !want.Drop && have.has[0] {
		if err := n.r.delFilter(l.Index, w.parent(), prefDrop); err != nil {
			return fmt.Errorf("removing the filter that drops packets: %w", err)
		}
	}
	return nil
}

// redirect sends the packets of a direction through a block with e.
func (n *Netlink) redirect(l LinkState, w Way, have impaired, e Netem, handle uint32) error {
	index := have.ifb
	var err error
	if index == 0 {
		if index, err = n.addBlock(l, w); err != nil {
			return err
		}
	}
	if err = n.setBlock(index, l.MTU, e); err == nil {
		err = n.checkSeed(index, e)
	}
	if err == nil && !have.has[1] {
		err = n.r.addFilter(l.Index, w.parent(), prefRedirect, handle, index)
	}
	if err != nil && have.ifb == 0 {
		err = errors.Join(err, n.delLink(index))
	}
	return err
}

// ErrNoSeed reports that the stack's netem has no seed.
var ErrNoSeed = errors.New("seed requires a stack with Linux 6.6 or later")

// checkSeed checks that the block's netem has the seed of e. Older kernels ignore the
// option.
func (n *Netlink) checkSeed(index int, e Netem) error {
	if e.Seed == 0 {
		return nil
	}
	qdiscs, err := n.r.qdiscs()
	if err != nil {
		return err
	}
	for _, q := range qdiscs {
		if q.index == index && q.kind == "netem" {
			if got, ok := parseNetem(q.options); ok && got.Seed == e.Seed {
				return nil
			}
		}
	}
	return ErrNoSeed
}

// blockName is the name of the block for a direction of an interface.
func blockName(l LinkState, w Way) string {
	if name := l.Name + "-" + w.String(); len(name) < unix.IFNAMSIZ {
		return name
	}
	return fmt.Sprintf("if%d-%v", l.Index, w)
}

// addBlock creates the block and sets it up. It reuses a block that already exists.
func (n *Netlink) addBlock(l LinkState, w Way) (index int, err error) {
	const (
		addrGenMode = 8 // IFLA_INET6_ADDR_GEN_MODE
		genNone     = 1 // IN6_ADDR_GEN_MODE_NONE
	)
	name := blockName(l, w)
	_, err = n.r.request(unix.RTM_NEWLINK, netlink.Acknowledge|netlink.Create|netlink.Excl, ifinfomsg(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
		ae.Uint32(unix.IFLA_MTU, uint32(l.MTU))
		ae.Nested(unix.IFLA_LINKINFO, func(ae *netlink.AttributeEncoder) error {
			ae.String(unix.IFLA_INFO_KIND, "ifb")
			return nil
		})
	})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, fmt.Errorf("creating the block %s: %w", name, err)
	}
	block, ok, err := n.Link(name)
	switch {
	case err != nil:
		return 0, err
	case !ok || block.Kind != "ifb":
		return 0, fmt.Errorf("creating the block %s: an interface with this name exists: %w", name, unix.EEXIST)
	}
	// The block needs no address; a stack without IPv6 assigns none.
	_, err = n.r.request(unix.RTM_NEWLINK, netlink.Acknowledge, ifinfomsg(block.Index, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.Nested(unix.IFLA_AF_SPEC, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(unix.AF_INET6, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(addrGenMode, genNone)
				return nil
			})
			return nil
		})
	})
	if err == nil || errors.Is(err, unix.EAFNOSUPPORT) {
		_, err = n.r.request(unix.RTM_NEWLINK, netlink.Acknowledge, ifinfomsg(block.Index, unix.IFF_UP, unix.IFF_UP), func(*netlink.AttributeEncoder) {})
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("creating the block %s: %w", name, err), n.delLink(block.Index))
	}
	return block.Index, nil
}

// delLink deletes an interface; it succeeds if there is no such interface.
func (n *Netlink) delLink(index int) error {
	_, err := n.r.request(unix.RTM_DELLINK, netlink.Acknowledge, ifinfomsg(index, 0, 0), func(*netlink.AttributeEncoder) {})
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("deleting the interface %d: %w", index, err)
	}
	return nil
}

// Handles of a block's queueing disciplines, and the class between them.
const (
	handleCutter = 1 << 16
	classCutter  = handleCutter | 1
	handleNetem  = 2 << 16
)

// setBlock sets a block's queueing disciplines, or changes netem's options.
func (n *Netlink) setBlock(index, mtu int, e Netem) error {
	const (
		tcaTbfParms  = 1
		tcaTbfRate64 = 4
		tcaTbfBurst  = 6
		sizeofQopt   = 36    // struct tc_tbf_qopt: two struct tc_ratespec, limit, buffer, mtu
		cutterRate   = 125e9 // byte/s: no stack reaches that
		linkLayer    = 22    // for the link layer, a VLAN tag and more
	)
	qopt := make([]byte, sizeofQopt)
	qopt[1] = 1                                             // tc_ratespec.linklayer: TC_LINKLAYER_ETHERNET
	binary.NativeEndian.PutUint32(qopt[8:], maxRate32)      // tc_ratespec.rate
	binary.NativeEndian.PutUint32(qopt[24:], uint32(mtu)*2) // limit, of the queue that netem replaces
	err := n.r.qdisc(index, handleCutter, tcHRoot, netlink.Replace, "tbf", func(ae *netlink.AttributeEncoder) error {
		ae.Bytes(tcaTbfParms, qopt)
		ae.Uint64(tcaTbfRate64, cutterRate)
		ae.Uint32(tcaTbfBurst, uint32(mtu+linkLayer))
		return nil
	})
	if err != nil {
		return fmt.Errorf("preparing packets: %w", err)
	}
	options, err := e.marshal()
	if err != nil {
		return err
	}
	_, err = n.r.request(unix.RTM_NEWQDISC, netlink.Acknowledge|netlink.Create|netlink.Replace, tcmsg(index, handleNetem, classCutter, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(tcaKind, "netem")
		ae.Bytes(tcaOptions, options)
	})
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("the stack has no queueing discipline `netem`: %w", err)
	}
	return err
}
