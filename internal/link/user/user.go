// SPDX-License-Identifier: Apache-2.0

// Package user is the interface type user: a gateway inside lklrun, which
// forwards connections through sockets of the host.
package user

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/link/user/gateway"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

const assigns = "the user-mode gateway assigns the addresses; remove it"

func init() {
	link.Register(config.Type{
		Name: config.DefaultType, Rank: 10,
		Help: "a user-mode gateway to everything the host reaches (default). 192.168.127.254 is the host's 127.0.0.1",
		Keys: []string{"mac"},
		Own: []config.Key{
			{Name: "tcp", Form: "linux|lklrun", Help: "where TCP connections end: in a Linux kernel in a process of its own (the default, if the host and the stack permit it), or in lklrun", Check: checkTCP},
		},
		Why:   map[string]string{"dhcp": assigns, "dhcp6": assigns, "slaac": assigns, "neigh": assigns},
		Check: check,
	}, driver{})
}

func checkTCP(value string) error {
	if value != "linux" && value != "lklrun" {
		return fmt.Errorf("%q; expected linux or lklrun", value)
	}
	return nil
}

func check(i *config.Interface) *config.KeyError {
	switch {
	case len(i.IP6) > 0 || i.GW6.IsValid():
		return config.KeyErrorf("ip6", "the user-mode gateway assigns the IPv6 address if the host has IPv6; remove it")
	case len(i.Routes) > 0:
		return config.KeyErrorf("route", "the user-mode gateway is the only router; remove it")
	case len(i.IP) > 1:
		return config.KeyErrorf("ip", "the user-mode gateway supports only one address")
	case len(i.IP) == 1 && (i.IP[0].Bits() > 29 || i.IP[0].Bits() < 8):
		return config.KeyErrorf("ip", "%s has no room for the gateway's addresses; expected a prefix length from 8 to 29", i.IP[0])
	}
	return nil
}

// Facts are the properties of the host that the gateway depends on.
type Facts struct {
	IPv6  bool           // the host's kernel supports IPv6, with or without a route
	Addrs []netip.Prefix // of the host
}

// Part is the plan of the gateway.
type Part = gateway.Config

type driver struct{}

func (driver) Look(_ context.Context, q *link.Query) (Facts, error) {
	var f Facts
	if !gateway.Available {
		return f, &link.FlagError{Err: gateway.ErrLeftOut}
	}
	if err := gateway.CheckPublish(q.Publish); err != nil {
		return f, &link.FlagError{Err: err}
	}
	q.Publish = nil
	f.IPv6 = kernelIPv6()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return f, nil // only a warning depends on them
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			f.Addrs = append(f.Addrs, p)
		}
	}
	return f, nil
}

// kernelIPv6 reports whether the host's kernel supports IPv6.
func kernelIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func (driver) Plan(r *link.Request, f Facts) (Part, error) {
	i, l, n := r.Interface, r.Link, free(r.Others)
	c := gateway.Default(n)
	if len(i.IP) > 0 {
		var err error
		if c, err = gateway.ForAddress(i.IP[0], i.GW); err != nil {
			return c, err
		}
	}
	if i.MTU != 0 {
		c.MTU = i.MTU
	}
	l.Managed, l.NameServer, l.HostLoopback = true, c.Gateway, c.Host
	l.Addrs, l.GW4, l.MTU = []netip.Prefix{c.Address}, c.Gateway, c.MTU
	if f.IPv6 && c.MTU >= config.MinMTU6 {
		c = c.WithIPv6(n)
		l.Addrs, l.GW6 = append(l.Addrs, c.Address6), c.Gateway6
	}
	if len(r.Allow) > 0 || r.Egress != "" {
		c.Egress, c.EgressLog, c.Allow, c.Hosts, l.HostLoopback = r.Egress, r.EgressLog, r.Allow, r.AllowHosts, netip.Addr{} // no hint about an address that is refused
	}
	if r.Proxy != "" {
		p, err := config.ParseProxy(r.Proxy)
		if err != nil {
			return c, err
		}
		c.Proxy, l.HostLoopback = &p, netip.Addr{}
	}
	if where := i.Own["tcp"]; where != "lklrun" {
		c.Kernel = &gateway.Kernel{Must: where == "linux"}
	}
	c.Publish, r.Publish = r.Publish, nil
	r.Hints = append(r.Hints, l.Name+": MPTCP and congestion control end at the user-mode gateway; --if tap, raw or udp passes it")
	for _, a := range f.Addrs {
		if a.Addr().Is4() && a.Bits() > 0 && a.Masked().Overlaps(c.Address.Masked()) {
			r.Note("%s has the network %s, which the host also uses, so the machines in it are unreachable; choose another network with --if user,ip=ADDRESS/PREFIX", l.Name, c.Address.Masked())
			break
		}
	}
	return c, nil
}

// free returns the number of the next free gateway network.
func free(others []link.Link) int {
	taken := map[netip.Prefix]bool{}
	for _, l := range others {
		if c, ok := l.TypePlan.(Part); ok {
			taken[c.Address] = true
		}
	}
	n := 0
	for taken[gateway.Default(n).Address] {
		n++
	}
	return n
}

func (driver) Describe(l *link.Link, c Part) link.Description {
	last := fmt.Sprintf("the host's 127.0.0.1 is %s", c.Host)
	if len(c.Allow) > 0 || c.Egress != "" {
		last = "only to allowed destinations"
	}
	if c.Proxy != nil {
		last = "through the proxy " + c.Proxy.String()
	}
	return link.Description{
		Summary: []string{"user-mode gateway"},
		Notes:   []string{last},
		Step:    fmt.Sprintf("start the user-mode gateway %s as %s", l.GW4, l.Name), Undo: "ends when lklrun exits",
	}
}

func (driver) Open(ctx context.Context, l *link.Link, c Part, env link.Env) (link.End, error) {
	c.User = env.User
	if c.Kernel != nil {
		c.Kernel = &gateway.Kernel{Must: c.Kernel.Must, Library: env.Library, Spin: env.Spin, Dir: filepath.Join(env.Dir, "gateway-"+l.Name)}
	}
	g, bell, err := gateway.Start(ctx, c, env.Log, func(words string) { env.Notify(l.Name + ": " + words) })
	// A port that is in use since the plan was made, a proxy without address, or a file
	if errors.As(err, new(*gateway.PublishError)) || errors.As(err, new(*gateway.FlagError)) {
		return link.End{}, &exit.UsageError{Err: err}
	}
	if err != nil {
		return link.End{}, err
	}
	plain := func() (*os.File, error) {
		f, err := g.Plain()
		if errors.As(err, new(*gateway.FlagError)) {
			err = &exit.UsageError{Err: err}
		}
		return f, err
	}
	end := link.End{PID: g.PID, Fallback: plain, Close: func() { g.Close() }, Counts: g.Counts, Egress: g.Egress, EgressRules: g.EgressRules, NameProcesses: g.NameProcesses, ChangeEgress: g.ChangeEgress}
	if bell == nil {
		end.Kind = ctlproto.CTL_LINK_FRAME
		end.File, err = plain()
	} else {
		end.Kind, end.Flags, end.PeerFD = ctlproto.CTL_LINK_WIRE, link.VnetFlags(true), bell
		end.File, err = link.Wire(l.Name)
	}
	if err != nil {
		end.Release()
		return link.End{}, err
	}
	return end, nil
}

func (driver) Check(context.Context) []link.Finding {
	if !gateway.Available {
		return []link.Finding{link.Found("gateway", "", "", gateway.ErrLeftOut)}
	}
	where := "a Linux kernel in a process of its own"
	if err := gateway.CheckKernel(); err != nil {
		where = "lklrun, which is slower: " + err.Error()
	}
	return []link.Finding{link.Found("gateway", "the user-mode gateway is built in; its TCP connections end in "+where, "", nil)}
}
