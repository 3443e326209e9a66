// SPDX-License-Identifier: Apache-2.0

// Package fd is the interface type fd: a descriptor that another process opened
// and handed over.
package fd

import (
	"context"
	"fmt"

	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

func init() {
	link.Register(config.Type{
		Name: "fd", Rank: 60, Arg: "fd", Form: "N",
		Help: "an inherited descriptor: a SOCK_DGRAM or SOCK_SEQPACKET socket with one frame per message, a tap, a tun or a packet socket",
		Keys: []string{"mac", "dhcp", "dhcp6", "slaac", "offload", "vlan", "neigh"},
	}, driver{})
}

// Facts describe the descriptor.
type Facts struct{ Kind netdev.FDKind }

// Part is empty, because link.Link contains the descriptor's number.
type Part struct{}

type driver struct{}

func (driver) Look(_ context.Context, q *link.Query) (f Facts, err error) {
	if q.Passed != nil {
		f.Kind, err = netdev.CheckPassed(q.Passed, q.Interface.FD)
	} else {
		f.Kind, err = netdev.CheckFD(q.Interface.FD)
	}
	return f, err
}

func (driver) Plan(r *link.Request, f Facts) (Part, error) {
	i := r.Interface
	if r.Link.RawIP = f.Kind.RawIP(); r.Link.RawIP && (!i.MAC.IsZero() || i.DHCP || i.DHCP6 || i.VLAN != 0) {
		return Part{}, fmt.Errorf("descriptor %d carries IP packets without Ethernet headers; remove mac, dhcp, dhcp6 and vlan", i.FD)
	}
	return Part{}, nil
}

func (driver) Describe(l *link.Link, _ Part) link.Description {
	return link.Description{
		Summary: []string{fmt.Sprintf("descriptor %d", l.FD)},
		Step:    fmt.Sprintf("use descriptor %d as %s", l.FD, l.Name),
	}
}

func (driver) Open(_ context.Context, l *link.Link, _ Part, env link.Env) (link.End, error) {
	var (
		f   *netdev.Frames
		err error
	)
	if env.Passed != nil {
		f, err = netdev.OpenPassed(env.Passed, l.FD)
	} else {
		f, err = netdev.OpenFD(l.FD)
	}
	if err != nil {
		return link.End{}, err
	}
	end := link.End{File: f.File, Kind: kinds[f.Kind], Flags: link.VnetFlags(f.VnetHdr)}
	switch {
	case f.Kind == netdev.FDSocket:
		if end.Watch, err = netdev.WatchSocket(f.File); err != nil {
			f.File.Close()
			return link.End{}, err
		}
		end.Gone = fmt.Sprintf("the other end of descriptor %d is closed", l.FD)
	case f.Ifindex != 0:
		end.Ifindex, end.Gone = f.Ifindex, fmt.Sprintf("%s %s was deleted on the host", nouns[f.Kind], f.Name)
	}
	return end, nil
}

var nouns = map[netdev.FDKind]string{
	netdev.FDTap: "tap", netdev.FDTun: "tun", netdev.FDPacket: "device", netdev.FDCooked: "device",
}

var kinds = map[netdev.FDKind]uint32{
	netdev.FDSocket: ctlproto.CTL_LINK_FRAME,
	netdev.FDTap:    ctlproto.CTL_LINK_TAP,
	netdev.FDTun:    ctlproto.CTL_LINK_TUN,
	netdev.FDPacket: ctlproto.CTL_LINK_PACKET,
	netdev.FDCooked: ctlproto.CTL_LINK_COOKED,
}

// Check returns nothing, because using a descriptor requires no privileges.
func (driver) Check(context.Context) []link.Finding { return nil }
