// SPDX-License-Identifier: Apache-2.0

// Package virtual coordinates the nodes of a lab in virtual time. Each node is a process,
// lklvirtual (csrc/virtual), with a stack and programs. Its clock stands still while they
// run, and advances to the next event when all of them wait.
//
// The nodes run in rounds. A round begins at the earliest event of all nodes and is as
// long as the least delay of a wire. No frame that a node sends in a round arrives in the
// same round, so each node runs alone. Between rounds, this package passes on the frames
// in the order of their times, which does not depend on the machine.
package virtual

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/paths"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

const (
	never = math.MaxUint64
	// begin is the monotonic clock of the nodes when the first program can start: BEGIN_NS
	// in csrc/virtual/virtual.h.
	begin = 100_000_000_000
)

// Epoch is the time of day at the start of each lab: REAL_OFFSET in
// csrc/virtual/virtual.h.
var Epoch = time.Unix(1767225600, 0).UTC()

// Interface is an interface of a node, ethN in its stack.
type Interface struct {
	Wire  int // index of its wire
	Addrs []netip.Prefix
}

// MAC returns the hardware address of the interface, which depends on its first IP address.
func (i *Interface) MAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	mac[0] = 2
	if len(i.Addrs) > 0 {
		ip := i.Addrs[0].Addr().AsSlice()
		copy(mac[2:], ip[len(ip)-4:])
	}
	return mac
}

// Node describes a node.
type Node struct {
	Name       string
	Library    string // stack library
	Mem        string
	MPTCP      bool     // TCP stream sockets become MPTCP
	Hosts      string   // content of /etc/hosts, as programs see it
	Env        []string // environment of the programs
	Dir        string   // working folder of the programs; empty: that of this process
	Sysctls    []string // NAME=VALUE
	Interfaces []Interface
	Config     stacknet.Config // of its interfaces
	Paths      []paths.Want
}

// Options describe a lab.
type Options struct {
	Bin    string // folder of lklvirtual; empty: that of this program
	Seed   uint64
	Wires  []Wire
	Nodes  []Node
	Packet func(node, iface int, at time.Time, frame []byte) error // called for each frame that is sent; may be nil
}

// Error is the error of a node with which the lab cannot go on, such as a system call that
// virtual time does not support.
type Error struct{ Node, Text string }

// Error names the node.
func (e *Error) Error() string { return "node " + e.Node + ": " + e.Text }

// Program is a program of a node.
type Program struct {
	Listens bool // it has called listen, or bind for datagrams
	Ended   bool
	Status  unix.WaitStatus // once it has ended
	At      time.Duration   // time of its end
}

// Lab is a lab in virtual time.
type Lab struct {
	ctx       context.Context //nolint:containedctx // of the connections to the stacks
	o         Options
	nodes     []*node
	programs  []*Program
	now       uint64 // end of the last round
	lookahead uint64
	ends      [][]wireEnd // of each wire
}

// end is an end of a wire.
type end struct{ node, iface int }

// frame is a frame that an end sends or receives.
type frame struct {
	end  end
	at   uint64
	data []byte
}

// Start starts the nodes.
func Start(ctx context.Context, o Options) (*Lab, error) {
	path, err := Find(o.Bin)
	if err != nil {
		return nil, err
	}
	l := &Lab{ctx: ctx, o: o, now: begin, lookahead: never, ends: make([][]wireEnd, len(o.Wires))}
	for k := range o.Wires {
		l.lookahead = min(l.lookahead, o.Wires[k].least())
	}
	seeds := rand.New(rand.NewPCG(o.Seed, never)) //nolint:gosec // repeatable on purpose
	var g errgroup.Group
	for k := range o.Nodes {
		for j, i := range o.Nodes[k].Interfaces {
			l.ends[i.Wire] = append(l.ends[i.Wire], wireEnd{end: end{k, j}})
		}
		n, err := startNode(ctx, path, &o.Nodes[k], seeds.Uint64())
		if err != nil {
			l.Close()
			return nil, err
		}
		l.nodes = append(l.nodes, n)
	}
	for k := range o.Wires {
		l.seed(k)
	}
	frames := make([][]frame, len(l.nodes))
	for k, n := range l.nodes {
		seed := seeds.Uint64()
		g.Go(func() error {
			return l.finish(k, n.configure(ctx, seed), &frames[k])
		})
	}
	err = g.Wait()
	if err == nil {
		err = l.deliver(slices.Concat(frames...))
	}
	for err == nil && slices.ContainsFunc(l.nodes, func(n *node) bool { return n.next < begin }) {
		err = l.Round(ctx, 0) // what is left of the boot
	}
	if l.now = begin; err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// seed begins the random decisions of a wire. The seeds of its ends are those of a lab in
// real time.
func (l *Lab) seed(wire int) {
	seed := l.o.Wires[wire].Netem.Seed
	if seed == 0 {
		seed = l.o.Seed
		for _, ends := range l.ends[:wire] {
			seed += uint64(len(ends))
		}
	}
	for k := range l.ends[wire] {
		l.ends[wire][k].chance = newChance(seed + uint64(k))
	}
}

// Close ends the nodes.
func (l *Lab) Close() {
	for _, n := range l.nodes {
		n.close()
	}
}

// Now returns the time since the start of the lab.
func (l *Lab) Now() time.Duration { return time.Duration(l.now - begin) }

// Executed returns the paths of the programs that the nodes have executed, in their order.
func (l *Lab) Executed() []string {
	all := map[string]bool{}
	for _, n := range l.nodes {
		maps.Copy(all, n.executed)
	}
	return slices.Sorted(maps.Keys(all))
}

// Run starts a program on a node now. Its output goes to a file.
func (l *Lab) Run(node int, output string, command []string) (*Program, error) {
	p := new(Program)
	l.programs = append(l.programs, p)
	data := append([]byte(output), 0)
	for _, w := range command {
		data = append(append(data, w...), 0)
	}
	n := l.nodes[node]
	n.next = min(n.next, l.now)
	return p, n.send(msgStart, len(l.programs)-1, l.now, data)
}

// Set changes a wire now. If it drops all packets, those in flight are lost, too.
func (l *Lab) Set(wire int, w Wire) error {
	was := l.o.Wires[wire]
	l.o.Wires[wire] = w
	if w.Netem != was.Netem {
		l.seed(wire) // as netem does
	}
	l.lookahead = never
	for k := range l.o.Wires {
		l.lookahead = min(l.lookahead, l.o.Wires[k].least())
	}
	for k := range l.ends[wire] {
		e := &l.ends[wire][k]
		n := l.nodes[e.node]
		if w.Drop {
			e.due = nil
			if err := n.send(msgLost, e.iface, l.now, nil); err != nil {
				return n.ended(err)
			}
		}
		if w.Carrier == was.Carrier {
			continue
		}
		if err := l.serve(e.node, l.now, func() error {
			return stacknet.SetCarrier(l.ctx, n.ctl, fmt.Sprintf("eth%d", e.iface), w.Carrier)
		}); err != nil {
			return err
		}
	}
	return l.keep()
}

// Calls lets f make calls in the stack of a node now. They take no time.
func (l *Lab) Calls(node int, f func(ctx context.Context, c *stackconn.Conn) error) error {
	return l.serve(node, l.now, func() error { return f(l.ctx, l.nodes[node].ctl) })
}

// Look lets f read the state of a node's stack, over its control connection or with netlink.
// The clock of the node and its next event stay as they are, so that the lab goes on as
// without Look.
func (l *Lab) Look(node int, f func(ctx context.Context, c *stackconn.Conn, n *stacknet.Netlink) error) error {
	n := l.nodes[node]
	next, changed := n.next, n.changed
	nl, err := n.steps.Netlink()
	if err != nil {
		return err
	}
	err = l.serve(node, 0, func() error { return f(l.ctx, n.ctl, nl) })
	n.next, n.changed, n.moved = next, changed, false
	return err
}

// Moved reports whether a node has done anything since it was last looked at.
func (l *Lab) Moved(node int) bool { return l.nodes[node].moved }

// serve lets f make calls in the stack of a node at a time; if it has passed, now.
func (l *Lab) serve(k int, at uint64, f func() error) error {
	if err := l.nodes[k].accept(at); err != nil {
		return err
	}
	var frames []frame
	if err := l.finish(k, f(), &frames); err != nil {
		return err
	}
	return l.deliver(frames)
}

// finish ends the calls in the stack of a node. err is their error.
func (l *Lab) finish(k int, err error, frames *[]frame) error {
	n := l.nodes[k]
	if err == nil {
		_, err = n.ctl.Go(l.ctx, ctlproto.Go{})
	}
	if err != nil && l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	if err != nil && !errors.Is(err, stackconn.ErrClosed) {
		return &Error{n.conf.Name, err.Error()}
	}
	return l.gather(k, frames) // if the node has ended, it has said why
}

// keep maintains the paths of the stacks that have changed, or for which it is time.
func (l *Lab) keep() error {
	if l.now < begin {
		return nil
	}
	for k, n := range l.nodes {
		if !n.changed && n.step > l.now {
			continue
		}
		n.changed = false
		if err := l.serve(k, l.now, func() error { return n.keep(l.now) }); err != nil {
			return err
		}
	}
	return nil
}

// Round runs the nodes up to the next time at which frames can arrive, but not beyond
// limit, the time since the start of the lab.
func (l *Lab) Round(ctx context.Context, limit time.Duration) error {
	first := uint64(never)
	stop := begin + uint64(limit)
	for _, n := range l.nodes {
		first, stop = min(first, n.next), min(stop, n.step)
	}
	if first >= stop {
		l.now = stop
		return l.keep()
	}
	until := min(first+l.lookahead, stop)
	frames := make([][]frame, len(l.nodes))
	var g errgroup.Group
	for k, n := range l.nodes {
		if n.next >= until {
			continue
		}
		g.Go(func() error {
			err := n.send(msgGrant, 0, until, nil)
			if err == nil {
				err = n.out.Flush()
			}
			if err != nil {
				return n.ended(err)
			}
			return l.gather(k, &frames[k])
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	l.now = until
	if err := l.deliver(slices.Concat(frames...)); err != nil {
		return err
	}
	return l.keep()
}

// gather reads the messages of a node up to the end of its round.
func (l *Lab) gather(k int, frames *[]frame) error {
	n := l.nodes[k]
	if err := n.conn.SetReadDeadline(time.Now().Add(roundLimit)); err != nil {
		return err
	}
	for {
		h, data, err := n.receive()
		if err != nil {
			return err
		}
		if (h.Type == msgListen || h.Type == msgEnd) && int(h.ID) >= len(l.programs) {
			return &Error{n.conf.Name, "a message about an unknown program"}
		}
		switch h.Type {
		case msgFrame:
			if int(h.ID) >= len(n.conf.Interfaces) {
				return &Error{n.conf.Name, "a frame of an unknown interface"}
			}
			*frames = append(*frames, frame{end{k, int(h.ID)}, h.Time, data})
		case msgExec:
			n.executed[string(data)] = true
		case msgListen:
			l.programs[h.ID].Listens = true
		case msgEnd:
			p := l.programs[h.ID]
			p.Ended, p.At = true, time.Duration(h.Time-begin)
			p.Status = unix.WaitStatus(binary.NativeEndian.Uint32(data))
		case msgDone:
			n.next, n.changed, n.moved = h.Time, n.changed || h.ID != 0, true
			return nil
		default:
			return &Error{n.conf.Name, fmt.Sprintf("a message of the unknown type %q", h.Type)}
		}
	}
}

// deliver passes on the frames of a round.
func (l *Lab) deliver(frames []frame) error {
	slices.SortStableFunc(frames, func(a, b frame) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	for _, f := range frames {
		if l.o.Packet != nil {
			if err := l.o.Packet(f.end.node, f.end.iface, Epoch.Add(time.Duration(f.at)-begin), f.data); err != nil {
				return err
			}
		}
		w := l.o.Nodes[f.end.node].Interfaces[f.end.iface].Wire
		for k := range l.ends[w] {
			e := &l.ends[w][k]
			if e.end == f.end || !l.accepts(e.end, f.data) {
				continue
			}
			n := l.nodes[e.node]
			for _, got := range e.receive(&l.o.Wires[w], f.at, f.data, false) {
				if err := n.send(msgFrame, e.iface, got.at, got.data); err != nil {
					return n.ended(err)
				}
				n.next = min(n.next, got.at)
			}
		}
	}
	return nil
}

// accepts reports whether a frame is for an end of a wire: to several stations, or to its
// address.
func (l *Lab) accepts(e end, data []byte) bool {
	mac := l.o.Nodes[e.node].Interfaces[e.iface].MAC()
	return len(data) < len(mac) || data[0]&1 != 0 || bytes.Equal(data[:len(mac)], mac)
}
