// SPDX-License-Identifier: Apache-2.0

// Package packet is the interface types raw and rawip: a packet socket on a
// device of the host.
package packet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/bpf"

	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

const (
	raw   = "raw"
	rawIP = "rawip"
)

func init() {
	link.Register(config.Type{
		Name: raw, Rank: 40, Arg: "device", Form: "DEV", Hijack: "raw", NeedsRoot: true, Lends: true,
		Help: "a packet socket on the host's Ethernet device DEV; without ip=, it shares the host's address",
		Keys: []string{"mac", "dhcp", "dhcp6", "slaac", "offload", "vlan", "neigh"},
	}, driver{})
	link.Register(config.Type{
		Name: rawIP, Rank: 50, Arg: "device", Form: "DEV", Hijack: "raw-ipenc", NeedsRoot: true, AnyGateway: true,
		Help: "like raw, for a device without Ethernet, such as rmnet0, ppp0 or a tun",
		Keys: []string{"slaac", "offload"},
	}, driver{rawIP: true})
}

// Choose returns an interface on a device of the host: raw for an Ethernet
// device, rawip for a device without link layer.
func Choose(device string) (config.Interface, error) {
	i := config.Interface{Type: raw, Device: device}
	without, err := netdev.WantsRawIP(device)
	if without {
		i.Type = rawIP
	}
	return i, err
}

// Facts describe the device of the host.
type Facts = netdev.DeviceState

// Part is empty, because link.Link contains everything needed.
type Part struct{}

type driver struct{ rawIP bool }

func (d driver) Look(_ context.Context, q *link.Query) (Facts, error) {
	q.MayShare = true
	st, err := netdev.CheckPacket(q.Interface.Device, d.rawIP)
	return st, q.MissingRight(err)
}

// Plan fills in the properties that the interface takes from the host's device.
// Without configured addresses, the interface uses those of the device and its
// gateways. If the device has one of the interface's addresses, the interface
// shares that address and the Ethernet address. With any other address, the
// interface is a separate machine on the network.
func (d driver) Plan(r *link.Request, f Facts) (Part, error) {
	i, l := r.Interface, r.Link
	l.RawIP, l.DetectDuplicates = d.rawIP, !d.rawIP
	own := !i.MAC.IsZero() || i.DHCP || i.DHCP6 || i.SLAAC
	if len(l.Addrs) == 0 && !own {
		if err := borrow(l, &f); err != nil {
			return Part{}, err
		}
	}
	var alone []netip.Addr
	for _, p := range l.Addrs {
		if p.Addr() == l.GW4 || p.Addr() == l.GW6 {
			return Part{}, fmt.Errorf("gateway %s is the interface's own address", p.Addr())
		}
		if f.Has(p.Addr()) {
			l.Shared = append(l.Shared, p.Addr())
		} else {
			alone = append(alone, p.Addr())
		}
	}
	if len(l.Shared) > 0 {
		switch {
		case len(alone) > 0:
			return Part{}, fmt.Errorf("%s is the host's address on %s and %s is not; an interface must have only addresses of the host, or none", l.Shared[0], i.Device, alone[0])
		case own && !l.RawIP:
			return Part{}, fmt.Errorf("%s is the host's address on %s, so the interface also shares its Ethernet address; remove mac, dhcp, dhcp6 and slaac, or choose another address", l.Shared[0], i.Device)
		case i.VLAN != 0:
			return Part{}, fmt.Errorf("%s is the host's address on %s, outside VLAN %d; choose another address with ip=, or remove vlan=", l.Shared[0], i.Device, i.VLAN)
		}
		if !l.RawIP {
			l.MAC = f.MAC
		}
	}
	if l.MTU == 0 {
		l.MTU = min(f.MTU, config.MaxMTU)
	} else if l.MTU > f.MTU {
		return Part{}, fmt.Errorf("mtu: the maximum of %s is %d bytes", i.Device, f.MTU)
	}
	if !f.Up {
		r.Note("%s is down or has no carrier on the host, so %s carries no traffic until that changes", i.Device, l.Name)
	}
	return Part{}, nil
}

// borrow copies the addresses and gateways of the device to the interface.
func borrow(l *link.Link, f *Facts) error {
	l.Addrs = slices.Clone(f.Lent)
	if len(l.Addrs) == 0 {
		return fmt.Errorf("%s has no address on the host to share; add ip=ADDRESS/PREFIX", l.Device)
	}
	for _, p := range l.Addrs {
		if p.Addr().Is6() && !l.GW6.IsValid() {
			l.GW6 = f.GW6
		} else if p.Addr().Is4() && !l.GW4.IsValid() {
			l.GW4 = f.GW4
		}
	}
	return nil
}

func (driver) Describe(l *link.Link, _ Part) link.Description {
	w := link.Description{
		Summary: []string{"Ethernet frames of " + l.Device},
		Step:    fmt.Sprintf("open a packet socket on %s as %s", l.Device, l.Name), Undo: "closed when lklhost exits",
	}
	if l.RawIP {
		w.Summary[0] = "IP packets of " + l.Device
	}
	switch {
	case len(l.Shared) > 0:
		w.Summary = append(w.Summary, "sharing the host's address")
		var texts []string
		for _, a := range l.Shared {
			texts = append(texts, a.String())
		}
		w.Step += ", sharing " + strings.Join(texts, ", ") + " with the host"
	case !l.RawIP:
		w.Step += ", for Ethernet address " + l.MAC.String()
	}
	return w
}

// Open opens a packet socket on a device of the host. If the link shares
// addresses with the host, the socket receives the stack's part of their
// packets, which the guard hides from the host.
func (driver) Open(ctx context.Context, l *link.Link, _ Part, env link.Env) (link.End, error) {
	if len(l.Shared) == 0 {
		return OpenOwn(l)
	}
	filter, err := env.Share(ctx, l)
	if err != nil {
		return link.End{}, err
	}
	end, err := open(l, filter, false)
	if err == nil {
		if end.Close, err = env.Guard(ctx, l); err != nil {
			end.Release()
		}
	}
	return end, err
}

// OpenOwn opens a packet socket for an interface with addresses of its own. On
// an Ethernet device, the socket receives frames to the interface's Ethernet
// address.
func OpenOwn(l *link.Link) (link.End, error) {
	if l.RawIP {
		return open(l, nil, false)
	}
	filter, err := netdev.OwnFilter(l.MAC)
	if err != nil {
		return link.End{}, fmt.Errorf("%s: the filter of its packet socket: %w", l.Device, err)
	}
	return open(l, filter, true)
}

func open(l *link.Link, filter []bpf.RawInstruction, promiscuous bool) (link.End, error) {
	p, err := netdev.OpenPacket(netdev.PacketOptions{Device: l.Device, RawIP: l.RawIP, Filter: filter, Promiscuous: promiscuous})
	if err != nil {
		return link.End{}, err
	}
	end := link.End{
		File: p.File, Kind: ctlproto.CTL_LINK_PACKET, Flags: link.VnetFlags(p.VnetHdr),
		Ifindex: p.Ifindex, Gone: fmt.Sprintf("device %s was deleted on the host", l.Device),
	}
	if l.RawIP {
		end.Kind = ctlproto.CTL_LINK_COOKED
	}
	return end, nil
}

// Check reports the requirements of both types, under raw.
func (d driver) Check(ctx context.Context) []link.Finding {
	if d.rawIP {
		return nil
	}
	method, err := guard.Choose(ctx, config.GuardAuto)
	return []link.Finding{
		link.Found("packet sockets", "available for --if raw and rawip", "--if raw and rawip are unavailable: ", netdev.CheckPacketRight()),
		link.Found("shared addresses", fmt.Sprintf("can be guarded with %s", method), "with --if raw and rawip: ", err),
	}
}
