// SPDX-License-Identifier: Apache-2.0

// Package udp is the interface type udp: a tunnel in UDP to an end of the user's
// own. It requires no privileges, and MPTCP of the stack reaches that end.
package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/link/udp/keys"
	"github.com/lklrun/lklrun/internal/link/udp/tunnel"
	"github.com/lklrun/lklrun/pkg/config"
)

const assigns = "the key file assigns the addresses; remove it"

func init() {
	link.Register(config.Type{
		Name: "udp", Rank: 17, Arg: "device", Form: "HOST:PORT",
		Help: "an encrypted tunnel in UDP to the gateway HOST, without privileges. udp:PORT is the gateway's end",
		Own: []config.Key{
			{Name: "key", Form: "FILE", Help: "the file with the keys of the tunnel, which \"lklrun gateway --new-key\" creates: a WireGuard configuration"},
			{Name: "via", Form: "DEVICE", Help: "the host's device through which the datagrams leave (default: as the host's routes say)", Check: config.CheckDevice},
		},
		Why: map[string]string{"dhcp": assigns, "dhcp6": assigns, "slaac": assigns},
		// All packets go to the other end.
		AnyGateway: true, ParseArg: parseArg, Check: check,
		// Each path to the same gateway is an interface.
		Exclusive: func(i *config.Interface) bool { return isPort(i.Device) }, Conflict: conflict,
	}, driver{})
}

const argForms = "expected udp:HOST:PORT for the gateway HOST, or udp:PORT for the gateway's own end"

// parseArg accepts HOST:PORT and PORT.
func parseArg(i *config.Interface, arg string) error {
	host, port := "", arg
	if !isPort(arg) {
		var err error
		if host, port, err = net.SplitHostPort(arg); err != nil || host == "" {
			return fmt.Errorf("udp: %q; %s", arg, argForms)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("udp: %q is not a port from 1 to 65535; %s", port, argForms)
	}
	i.Device = arg
	return nil
}

// isPort reports whether the argument is only a port.
func isPort(arg string) bool {
	_, err := strconv.Atoi(arg)
	return err == nil
}

func check(i *config.Interface) *config.KeyError {
	switch {
	case i.Own["key"] == "":
		return config.KeyErrorf("key", "missing; add key=FILE with a file that `lklrun gateway --new-key DIR` created")
	case len(i.IP) > 0:
		return config.KeyErrorf("ip", "%s", assigns)
	case len(i.IP6) > 0:
		return config.KeyErrorf("ip6", "%s", assigns)
	case isPort(i.Device) && i.Own["via"] != "":
		return config.KeyErrorf("via", "a gateway accepts tunnels on all devices; remove via")
	case isPort(i.Device) && (i.GW.IsValid() || i.GW6.IsValid()):
		return config.KeyErrorf("gw", "this end is the gateway; remove gw and gw6")
	}
	return nil
}

// conflict keeps two paths from the same key. The gateway would send the packets
// of both to the one that was used last.
func conflict(all []config.Interface, first, second int) string {
	if all[first].Own["key"] == all[second].Own["key"] {
		return fmt.Sprintf("key=%s is already used by eth%d; each interface requires its own key file (`lklrun gateway --new-key DIR --paths N`)", all[second].Own["key"], first)
	}
	return ""
}

// Facts are the content of the key file, without its secrets, and the way to the
// gateway.
type Facts struct {
	keys.Facts
	Remote netip.AddrPort
	// Peer is the gateway's address in the tunnel, and Own is ours of that
	// family.
	Peer, Own netip.Addr
}

// Part is the plan of a tunnel. It contains no secrets.
type Part struct {
	Key     string         `json:"key"`
	Remote  netip.AddrPort `json:"remote,omitzero"` // invalid: this end is the gateway
	Via     string         `json:"via,omitempty"`
	Listen  uint16         `json:"listen,omitempty"`
	Gateway netip.Addr     `json:"gateway,omitzero"` // its address in the tunnel
	Own     netip.Addr     `json:"own,omitzero"`
}

type driver struct{}

func (driver) Look(ctx context.Context, q *link.Query) (f Facts, err error) {
	if !tunnel.Available {
		return f, &link.FlagError{Err: tunnel.ErrLeftOut}
	}
	i := q.Interface
	file, err := keys.Read(i.Own["key"])
	if err != nil {
		return f, fmt.Errorf("key: %w; `lklrun gateway --new-key DIR` creates key files", err)
	}
	f.Facts = file.Facts
	if isPort(i.Device) {
		number, _ := strconv.ParseUint(i.Device, 10, 16) // checked by parseArg
		return f, tunnel.CheckPort(ctx, uint16(number))
	}
	if len(file.Peers) != 1 {
		return f, fmt.Errorf("key: %s has %d peers, and a client's file has one, the gateway; use another file", i.Own["key"], len(file.Peers))
	}
	f.Peer, f.Own = file.Gateway()
	ways, err := tunnel.Find(ctx, i.Device, i.Own["via"])
	if err != nil {
		return f, err
	}
	f.Remote = ways[0].Remote
	return f, f.Limit(ways[0].Room, i)
}

func (driver) Plan(r *link.Request, f Facts) (Part, error) {
	i, l := r.Interface, r.Link
	p := Part{Key: f.Path, Remote: f.Remote, Via: i.Own["via"], Gateway: f.Peer, Own: f.Own}
	if isPort(i.Device) {
		n, err := strconv.ParseUint(i.Device, 10, 16)
		if err != nil {
			return p, err
		}
		p.Listen = uint16(n)
	}
	f.Facts.Plan(r)
	p.choose(l)
	return p, nil
}

// choose lets gw and gw6 replace the gateway's address in the tunnel. Routes need
// no gateway, because the tunnel has only one other end.
func (p *Part) choose(l *link.Link) {
	for _, gw := range []netip.Addr{l.GW6, l.GW4} {
		n := slices.IndexFunc(l.Addrs, func(a netip.Prefix) bool { return gw.IsValid() && a.Addr().Is4() == gw.Is4() })
		if n >= 0 {
			p.Gateway, p.Own = gw, l.Addrs[n].Addr()
		}
	}
	l.GW4, l.GW6 = netip.Addr{}, netip.Addr{}
}

func (driver) Describe(l *link.Link, p Part) link.Description {
	if p.Listen != 0 {
		return link.Description{
			Summary: []string{fmt.Sprintf("gateway for tunnels in UDP, port %d", p.Listen)},
			Step:    fmt.Sprintf("accept tunnels on UDP port %d as %s", p.Listen, l.Name), Undo: "ends when lklrun exits",
		}
	}
	w := link.Description{
		Summary: []string{fmt.Sprintf("tunnel in UDP to %s", p.Remote)},
		Step:    fmt.Sprintf("connect to the gateway %s as %s", p.Remote, l.Name), Undo: "ends when lklrun exits",
	}
	if p.Via != "" {
		w.Summary[0] += " through " + p.Via
		w.Step = fmt.Sprintf("connect to the gateway %s through %s as %s", p.Remote, p.Via, l.Name)
	}
	return w
}

func (driver) Check(ctx context.Context) []link.Finding {
	err := tunnel.CheckVia(ctx)
	if errors.Is(err, unix.EPERM) {
		err = errors.New("via= uses the device's address, because this user cannot bind sockets to a device (Linux before 5.7)")
	}
	return []link.Finding{link.Found("udp", "tunnels can leave through each device of the host", "", err)}
}
