// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// choose selects the ports. The set reserved contains the host's reserved
// ports. The set others contains the ports of other runs, whose reservations
// may not exist yet, or no longer.
func (w *Wish) choose(ctx context.Context, reserved, others *portSet) (Ports, error) {
	sockets, err := hostSockets(ctx)
	if err != nil {
		return Ports{}, err
	}
	if err := w.checkListen(sockets, others); err != nil {
		return Ports{}, err
	}
	used := &portSet{}
	for _, s := range sockets {
		used.add(int(s.Local.Port()))
	}
	p := Ports{First: w.First, Last: w.Last, Listen: w.Listen}
	if w.First != 0 {
		for n := int(w.First); n <= int(w.Last); n++ {
			if used.has(n) {
				return Ports{}, exit.Usagef("--port-range %d-%d: port %d is in use on the host; choose another range", w.First, w.Last, n)
			}
			if others.has(n) {
				return Ports{}, exit.Usagef("--port-range %d-%d: another run uses port %d; choose another range", w.First, w.Last, n)
			}
		}
		return p, nil
	}
	used.addAll(reserved)
	used.addAll(others)
	for _, l := range w.Listen {
		used.add(int(l))
	}
	low, high := localRange()
	first, ok := used.room(w.Size, low, high)
	if !ok {
		return Ports{}, exit.Usagef("the host has no %d consecutive free ports; pass a smaller number with --port-range", w.Size)
	}
	p.First, p.Last = uint16(first), uint16(first+w.Size-1)
	return p, nil
}

// Preview chooses ports like Reserve, but changes nothing.
func Preview(ctx context.Context, w Wish) (Ports, error) {
	reserved, err := readReserved()
	if err != nil {
		return Ports{}, err
	}
	return w.choose(ctx, reserved, &portSet{})
}

// Servers usually use ports below firstPort.
const firstPort = 10000

// room finds size consecutive ports that are not in the set. It prefers ports
// outside low to high, the range from which the host assigns ports. The host
// also assigns ports of that range to packets that it masquerades, such as
// those of containers. Those ports belong to no socket and are not reserved.
func (s *portSet) room(size, low, high int) (first int, ok bool) {
	for _, zone := range [][2]int{{max(high+1, firstPort), maxPort}, {firstPort, low - 1}, {max(low, firstPort), min(high, maxPort)}, {1024, maxPort}} {
		free := 0
		for p := zone[1]; p >= zone[0] && p > 0; p-- {
			if free++; s.has(p) {
				free = 0
			}
			if free == size {
				return p, true
			}
		}
	}
	return 0, false
}

// Sockets lists the host's sockets at ports that servers of the stack want.
func Sockets(ctx context.Context, listen []uint16) ([]sockdiag.Socket, error) {
	if len(listen) == 0 {
		return nil, nil
	}
	all, err := hostSockets(ctx)
	return slices.DeleteFunc(all, func(s sockdiag.Socket) bool { return !slices.Contains(listen, s.Local.Port()) }), err
}

// CheckListen returns an error if a socket of the host uses one of the servers'
// ports at a shared address.
func CheckListen(listen []uint16, addrs []netip.Addr, sockets []sockdiag.Socket) error {
	w := Wish{Listen: listen, Addrs: addrs}
	return w.checkListen(sockets, &portSet{})
}

func (w *Wish) checkListen(sockets []sockdiag.Socket, others *portSet) error {
	for _, l := range w.Listen {
		if others.has(int(l)) {
			return exit.Usagef("--listen %d: another run uses this port; choose another port", l)
		}
		for _, s := range sockets {
			if s.Local.Port() == l && s.State != sockdiag.TimeWait && w.shares(s.Local.Addr()) {
				return exit.Usagef("--listen %d: a %s socket of the host at %v uses this port; stop that program or choose another port", l, s.Proto, s.Local)
			}
		}
	}
	return nil
}

// shares reports whether a socket bound to local receives packets sent to a
// shared address.
func (w *Wish) shares(local netip.Addr) bool {
	local = local.Unmap().WithZone("")
	for _, a := range w.Addrs {
		if local == a || local.IsUnspecified() && (a.Is4() || local.Is6()) {
			return true
		}
	}
	return false
}

// hostSockets lists the sockets of the host that have a port.
func hostSockets(ctx context.Context) ([]sockdiag.Socket, error) {
	var all []sockdiag.Socket
	for _, proto := range []sockdiag.Proto{sockdiag.TCP, sockdiag.UDP} {
		some, err := sockdiag.List(ctx, hostNetlink{}, proto)
		if err != nil {
			return nil, fmt.Errorf("listing the ports in use on the host: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// hostNetlink opens netlink sockets of the host's kernel.
type hostNetlink struct{}

func (hostNetlink) Netlink(ctx context.Context, family int, groups ...uint32) (*netlink.Conn, error) {
	c, err := netlink.Dial(family, &netlink.Config{})
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if err := c.JoinGroup(g); err != nil {
			c.Close()
			return nil, err
		}
	}
	if limit, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(limit); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}
