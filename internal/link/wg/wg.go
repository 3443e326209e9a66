// SPDX-License-Identifier: Apache-2.0

// Package wg is the interface type wg: the peers of a WireGuard configuration, as
// providers and administrators write it for wg-quick(8). It requires no
// privileges.
package wg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/link/udp/keys"
	"github.com/lklrun/lklrun/internal/link/udp/tunnel"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

const assigns = "the file assigns the addresses and routes; remove it"

func init() {
	link.Register(config.Type{
		Name: "wg", Rank: 18, Arg: "device", Form: "FILE",
		Help: "the WireGuard tunnel of the configuration FILE, as of a VPN provider, without privileges",
		Why:  map[string]string{"dhcp": assigns, "dhcp6": assigns, "slaac": assigns},
		// All packets go to the peers.
		AnyGateway: true, ParseArg: parseArg, Check: check,
	}, driver{})
}

func parseArg(i *config.Interface, arg string) error {
	if arg == "" {
		return errors.New("wg: no file; expected wg:FILE")
	}
	i.Device = arg
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
	return nil
}

// Facts are the content of the file, without its secrets, and the addresses of the
// peers' endpoints.
type Facts struct {
	keys.Facts
	Reach     []netip.Prefix
	Ignored   []string
	Endpoints map[string]netip.AddrPort
	Later     []string // why endpoints have no address yet
}

// Part is the plan of a tunnel. It contains no secrets.
type Part struct {
	File      string                    `json:"file"`
	Endpoints map[string]netip.AddrPort `json:"endpoints,omitempty"`
}

type driver struct{}

func (driver) Look(ctx context.Context, q *link.Query) (f Facts, err error) {
	if !tunnel.Available {
		return f, &link.FlagError{Err: tunnel.ErrLeftOut}
	}
	file, err := keys.Read(q.Interface.Device)
	if err != nil {
		return f, err
	}
	f.Facts, f.Ignored, f.Endpoints = file.Facts, file.Ignored, map[string]netip.AddrPort{}
	for _, p := range file.Peers {
		f.Reach = append(f.Reach, p.Allowed...)
		if err := f.find(ctx, q.Interface, p.Endpoint); err != nil {
			return f, err
		}
	}
	if f.Reach = f.routes(); len(f.Reach) == 0 {
		return f, fmt.Errorf("%s: no [Peer] has AllowedIPs of a family of Address, so the tunnel would carry nothing", file.Path)
	}
	if file.Port != 0 {
		if err := tunnel.CheckPort(ctx, file.Port); err != nil {
			return f, fmt.Errorf("%s: ListenPort: %w", file.Path, err)
		}
	}
	return f, nil
}

// find looks up an endpoint. If the host has no network now, the tunnel does it
// later.
func (f *Facts) find(ctx context.Context, i *config.Interface, endpoint string) error {
	if endpoint == "" {
		return nil
	}
	ways, err := tunnel.Find(ctx, endpoint, "")
	if unknown := (*net.DNSError)(nil); errors.As(err, &unknown) && unknown.IsNotFound {
		return fmt.Errorf("%s: Endpoint: %w", f.Path, err)
	}
	if err != nil {
		f.Later = append(f.Later, err.Error())
		return nil
	}
	f.Endpoints[endpoint] = ways[0].Remote
	return f.Limit(ways[0].Room, i)
}

// routes returns the networks behind the peers that an address can reach.
func (f *Facts) routes() (all []netip.Prefix) {
	for _, to := range f.Reach {
		has := func(a netip.Prefix) bool { return a.Addr().Is4() == to.Addr().Is4() }
		if slices.ContainsFunc(f.Addrs, has) && !slices.Contains(all, to) {
			all = append(all, to)
		}
	}
	return all
}

func (driver) Plan(r *link.Request, f Facts) (Part, error) {
	l := r.Link
	f.Facts.Plan(r)
	l.Reach, l.OnlyDNS = f.Reach, len(l.DNS) > 0
	if len(f.Ignored) > 0 {
		r.Note("%s: ignored in %s: %s", l.Name, f.Path, strings.Join(f.Ignored, ", "))
	}
	for _, a := range l.DNS {
		if !slices.ContainsFunc(f.Reach, func(p netip.Prefix) bool { return p.Contains(a) }) {
			r.Note("%s: no peer has the name server %s in its AllowedIPs, so queries do not go through the tunnel", l.Name, a)
		}
	}
	for _, why := range f.Later {
		r.Note("%s: %s; lklrun tries again", l.Name, why)
	}
	return Part{File: f.Path, Endpoints: f.Endpoints}, nil
}

func (driver) Describe(l *link.Link, p Part) link.Description {
	to := ""
	if len(p.Endpoints) > 0 {
		to = " to " + strings.Join(slices.Sorted(maps.Keys(p.Endpoints)), ", ")
	}
	return link.Description{
		Summary: []string{"WireGuard tunnel" + to},
		Step:    fmt.Sprintf("open the WireGuard tunnel%s as %s", to, l.Name), Undo: "ends when lklrun exits",
	}
}

func (driver) Open(ctx context.Context, l *link.Link, p Part, env link.Env) (link.End, error) {
	file, err := keys.Read(p.File)
	if err != nil { // it has changed since the plan was made
		return link.End{}, &exit.UsageError{Err: err}
	}
	t, f, err := tunnel.Join(ctx, tunnel.Config{
		Keys: file, MTU: l.MTU, Log: env.Log, Port: file.Port, Endpoints: p.Endpoints,
		Say: func(line string) { env.Note(l.Name + ": " + line) },
	})
	if errors.Is(err, unix.EADDRINUSE) {
		err = exit.Usagef("--if wg:%s: ListenPort %d is in use; choose another port", l.Device, file.Port)
	}
	if err != nil {
		return link.End{}, err
	}
	return link.End{
		File: f, Kind: ctlproto.CTL_LINK_FRAME, Flags: tunnel.LinkFlags, Close: t.Close, TunnelPeers: t.Peers,
	}, nil
}

func (driver) Check(context.Context) []link.Finding { return nil }
