// SPDX-License-Identifier: Apache-2.0

// Package clat is the interface type clat: IPv4 over the IPv6-only network of another
// interface, by 464XLAT (RFC 6877). The stack sends IPv4 packets to this interface. The
// translator at its other end, in lklrun, returns them as IPv6 packets, which the stack
// forwards to the NAT64 of the network. It requires no privileges.
package clat

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/link/clat/siit"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

const assigns = "a clat has an address of 192.0.0.0/29 and the default route; remove it"

func init() {
	link.Register(config.Type{
		Name: Type, Rank: 60, Arg: "device", Form: "PREFIX",
		Help: "IPv4 through the NAT64 of an IPv6-only network (464XLAT). clat alone uses the prefix that the network announces",
		Own: []config.Key{{Name: "over", Form: "ethN", Help: "the interface in the IPv6-only network (default: the first with an IPv6 address)",
			Check: config.CheckDevice}},
		Why:        map[string]string{"dhcp": assigns, "dhcp6": assigns, "slaac": assigns},
		AnyGateway: true, ParseArg: parse, Check: check,
		// Interfaces over different networks may have the same prefix.
		Exclusive: func(*config.Interface) bool { return false },
		Conflict:  conflict,
	}, driver{})
}

// Type is the name of the interface type.
const Type = "clat"

func parse(i *config.Interface, arg string) error {
	if i.Device = arg; arg == "" {
		return nil
	}
	p, err := netip.ParsePrefix(arg)
	if err != nil {
		return fmt.Errorf("clat: %q; expected the prefix of a NAT64, such as %s", arg, siit.WellKnown)
	}
	if err := siit.CheckPrefix(p); err != nil {
		return fmt.Errorf("clat: %w", err)
	}
	return nil
}

func check(i *config.Interface) *config.KeyError {
	for key, set := range map[string]bool{
		"ip": len(i.IP) > 0, "ip6": len(i.IP6) > 0, "gw": i.GW.IsValid(), "gw6": i.GW6.IsValid(), "route": len(i.Routes) > 0,
	} {
		if set {
			return config.KeyErrorf(key, "%s", assigns)
		}
	}
	if i.MTU != 0 {
		return config.KeyErrorf("mtu", "a clat has the MTU of the interface that it is over; remove it")
	}
	return nil
}

func conflict(all []config.Interface, first, second int) string {
	if over := all[second].Own["over"]; over == all[first].Own["over"] {
		return fmt.Sprintf("eth%d is a clat over the same interface; add over=ethN", first)
	}
	return ""
}

// Part is the plan of a clat.
type Part struct {
	Own    netip.Addr   `json:"own"`             // its IPv4 address
	Prefix netip.Prefix `json:"prefix,omitzero"` // zero: the network announces it
	Over   string       `json:"over,omitempty"`  // empty: the first interface with an IPv6 address
}

// Facts is empty, because a clat uses nothing of the host.
type Facts struct{}

type driver struct{}

func (driver) Look(context.Context, *link.Query) (f Facts, err error) { return f, nil }

func (driver) Plan(r *link.Request, _ Facts) (Part, error) {
	i := r.Interface
	p := Part{Over: i.Own["over"]}
	if i.Device != "" {
		p.Prefix = netip.MustParsePrefix(i.Device) // parse has checked it
	}
	r.Link.RawIP, r.Link.Managed = true, true
	used := func(a netip.Addr) bool {
		return slices.ContainsFunc(r.Others, func(l link.Link) bool {
			other, ok := l.TypePlan.(Part)
			return ok && other.Own == a
		})
	}
	// RFC 7335: each end of an IPv4-over-IPv6 mechanism chooses from this network.
	for p.Own = netip.AddrFrom4([4]byte{192, 0, 0, 1}); used(p.Own); p.Own = p.Own.Next() {
	}
	if !netip.PrefixFrom(p.Own, 29).Masked().Contains(netip.AddrFrom4([4]byte{192, 0, 0, 1})) {
		return p, fmt.Errorf("192.0.0.0/29 has no address left; remove a clat")
	}
	return p, nil
}

func (driver) Describe(l *link.Link, p Part) link.Description {
	through, over := "the NAT64 of the network", "the first interface with an IPv6 address"
	if p.Prefix.IsValid() {
		through = "the NAT64 " + p.Prefix.String()
	}
	if p.Over != "" {
		over = p.Over
	}
	return link.Description{
		Summary: []string{"IPv4 through " + through + ", over " + over},
		Step:    fmt.Sprintf("start the translation between IPv4 and IPv6 as %s, for %s", l.Name, through), Undo: "ends when lklrun exits",
	}
}

// Open starts the translator. It drops all packets until it is configured.
func (driver) Open(_ context.Context, _ *link.Link, p Part, _ link.Env) (link.End, error) {
	ours, end, err := netdev.Pair("clat")
	if err != nil {
		return link.End{}, err
	}
	t := &siit.Translator{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, siit.BufferSize)
		for {
			n, err := ours.Read(b[siit.Headroom:])
			if err != nil || n == 0 {
				return
			}
			// An error is a lost packet, as on a wire. At the end, Read fails too.
			t.Translate(b[:siit.Headroom+n], func(message []byte) { _, _ = ours.Write(message) })
		}
	}()
	return link.End{
		File: end, Kind: ctlproto.CTL_LINK_FRAME,
		Flags: ctlproto.CTL_LINKF_RAWIP | ctlproto.CTL_LINKF_VNET10 | ctlproto.CTL_LINKF_OFFLOAD,
		Close: func() {
			ours.Close()
			<-ended
		},
		CLAT: func(own netip.Addr, nat64 netip.Prefix) {
			if !nat64.IsValid() {
				t.Set(nil)
				return
			}
			t.Set(&siit.Config{Own4: p.Own, Own6: own, Prefix: nat64})
		},
		Counts: t.Counts,
	}, nil
}

func (driver) Check(context.Context) []link.Finding { return nil }
