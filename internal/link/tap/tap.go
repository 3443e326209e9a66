// SPDX-License-Identifier: Apache-2.0

// Package tap is the interface type tap: a tap device of the host.
package tap

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

func init() {
	link.Register(config.Type{
		Name: "tap", Rank: 20, Arg: "device", Form: "NAME", Hijack: "tap",
		Help: "the tap NAME of the host; if missing, it is created for the duration of the run",
		Keys: []string{"mac", "dhcp", "dhcp6", "slaac", "offload", "vlan", "neigh"},
		Own: []config.Key{
			{Name: "bridge", Form: "BRIDGE", Help: "a bridge of the host to attach the tap to", Check: config.CheckDevice},
			{Name: "nat", Flag: true, Help: "the host forwards and masquerades for the tap; gives the interface its address"},
			{Name: "multiqueue", Flag: true, Help: "share the tap with other runs that have the same ip and mac; the host spreads connections over them"},
		},
		Check: check,
	}, driver{})
}

func check(i *config.Interface) *config.KeyError {
	bridge, nat, queue := i.Own["bridge"], i.On("nat"), i.On("multiqueue")
	switch leases := i.DHCP || i.DHCP6 || i.SLAAC; {
	case nat && bridge != "":
		return config.KeyErrorf("nat", "a bridged tap has addresses of the bridge's network; remove nat or bridge")
	case nat && leases:
		return config.KeyErrorf("nat", "nat assigns the addresses; remove dhcp, dhcp6 and slaac")
	case nat && i.VLAN > 0:
		return config.KeyErrorf("nat", "the host's side of the tap is not in a VLAN; remove nat or vlan")
	case queue && i.MAC.IsZero():
		return config.KeyErrorf("multiqueue", "all runs that share the tap need the same Ethernet address; add the same mac= to each")
	case queue && leases:
		return config.KeyErrorf("multiqueue", "only one of the runs that share the tap would receive the answers; remove dhcp, dhcp6 and slaac")
	case queue && (nat || bridge != ""):
		return config.KeyErrorf("multiqueue", "the first run to end would remove it for the others; remove nat and bridge, and set them up before the runs")
	}
	return nil
}

// Facts describe the tap and, with nat or bridge, the related state of the
// host.
type Facts struct {
	netdev.TapState
	BridgeMTU int            // 0: no bridge is wanted
	IPv6      bool           // nat: the host has an IPv6 default route
	Routed    []netip.Prefix // nat: networks that the host has routes to
}

// Part is the plan of a tap.
type Part struct {
	Create    bool           `json:"create,omitempty"` // it does not exist yet
	Bridge    string         `json:"bridge,omitempty"`
	NAT       bool           `json:"nat,omitempty"`
	Queue     bool           `json:"multiqueue,omitempty"` // one of several queues, which other processes can have
	HostAddrs []netip.Prefix `json:"host_addrs,omitempty"` // nat: addresses on the host's side
}

type driver struct{}

func (driver) Look(ctx context.Context, q *link.Query) (Facts, error) {
	i := q.Interface
	st, err := netdev.CheckTap(i.Device, i.On("multiqueue"))
	f := Facts{TapState: st}
	if err := q.MissingRight(err); err != nil {
		return f, err
	}
	if bridge := i.Own["bridge"]; bridge != "" {
		f.BridgeMTU, err = netdev.CheckBridge(bridge, i.Device, st.Exists)
		if err != nil {
			err = q.MissingRight(fmt.Errorf("bridge: %w", err))
		}
		if err != nil {
			return f, err
		}
	}
	if !i.On("nat") {
		return f, nil
	}
	if err := netdev.CheckNAT(ctx); err != nil {
		if err = q.MissingRight(fmt.Errorf("nat: %w", err)); err != nil {
			return f, err
		}
	}
	f.IPv6 = netdev.RoutesIPv6()
	f.Routed, err = netdev.Routed()
	return f, err
}

func (driver) Plan(r *link.Request, f Facts) (Part, error) {
	i, l := r.Interface, r.Link
	p := Part{Create: !f.Exists, Bridge: i.Own["bridge"], NAT: i.On("nat"), Queue: i.On("multiqueue")}
	if f.Exists && !f.Up {
		r.Note("tap %s is down on the host, so %s carries no traffic; run `ip link set %s up`", l.Device, l.Name, l.Device)
	}
	if f.BridgeMTU != 0 && p.Create && l.MTU == 0 {
		l.MTU = min(f.BridgeMTU, config.MaxMTU)
	}
	if !p.NAT {
		return p, nil
	}
	if !p.Create {
		return p, fmt.Errorf("nat: tap %s already exists, and lklrun does not reconfigure it; remove nat, or choose another name", l.Device)
	}
	err := p.nat(l, &f, r.Machine)
	return p, err
}

func (driver) Describe(l *link.Link, p Part) link.Description {
	w := link.Description{Summary: []string{"tap " + l.Device}, Step: fmt.Sprintf("attach to tap %s as %s", l.Device, l.Name), Undo: "detach"}
	if p.Create {
		w.Summary[0] += " (to be created)"
	}
	if p.Queue {
		w.Step = fmt.Sprintf("attach to a queue of tap %s as %s", l.Device, l.Name)
	}
	if p.Create {
		w.Step, w.Undo = fmt.Sprintf("create tap %s, mtu %d, up, as %s", l.Device, l.MTU, l.Name), "delete it"
	}
	if p.Create && p.Queue {
		w.Step, w.Undo = w.Step+", with several queues", "detach; the last run that shares the tap deletes it"
	}
	if p.Bridge != "" {
		w.Summary = append(w.Summary, "in bridge "+p.Bridge)
		w.Step += ", in bridge " + p.Bridge
		if !p.Create {
			w.Undo += ", and remove it from the bridge"
		}
	}
	if p.Queue {
		w.Summary = append(w.Summary, "one queue")
	}
	if p.NAT {
		w.Summary = append(w.Summary, "masqueraded by the host")
		var addrs []string
		for _, a := range p.HostAddrs {
			addrs = append(addrs, a.String())
		}
		w.Step += fmt.Sprintf("; assign %s to the host's side, enable forwarding, masquerade", strings.Join(addrs, " and "))
		w.Undo += ", delete the firewall rules, and restore the forwarding setting"
	}
	return w
}

func (driver) Open(ctx context.Context, l *link.Link, p Part, env link.Env) (link.End, error) {
	o := netdev.TapOptions{Queue: p.Queue, Plain: l.NoOffload()}
	if p.Create {
		o.MTU = l.MTU
	}
	tap, err := netdev.OpenTap(l.Device, o, env.Journal)
	if err != nil {
		return link.End{}, err
	}
	if p.Bridge != "" {
		err = tap.Bridge(p.Bridge, env.Journal)
	}
	if p.NAT && err == nil {
		err = tap.NAT(ctx, p.HostAddrs, func() ([]netdev.Undo, error) { return env.UndosOfOthers(netdev.OpNAT) }, env.Journal)
	}
	member := false
	if err == nil {
		member, err = tap.Member()
	}
	if err != nil {
		tap.File.Close()
		return link.End{}, err
	}
	// To forward big packets to another device, the host would have to
	// segment them itself.
	flags := link.VnetFlags(tap.VnetHdr)
	if !member && !p.NAT && tap.VnetHdr {
		flags |= ctlproto.CTL_LINKF_BIG
	}
	return link.End{File: tap.File, Kind: ctlproto.CTL_LINK_TAP, Flags: flags, Ifindex: tap.Ifindex}, nil
}

func (driver) Check(ctx context.Context) []link.Finding {
	err := netdev.CheckTun()
	if err == nil && !netdev.Capable(unix.CAP_NET_ADMIN) {
		err = fmt.Errorf("only taps that root created for uid %d: creating a tap requires CAP_NET_ADMIN", os.Geteuid())
	}
	return []link.Finding{
		link.Found("taps", "can be created and used", "", err),
		link.Found("nat", "available for --if tap", "--if tap with nat is unavailable: ", netdev.CheckNAT(ctx)),
	}
}
