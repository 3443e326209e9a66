// SPDX-License-Identifier: Apache-2.0

package whynot

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/ask"
	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Gather reads the data that Explain needs about conns, all connections and listeners of
// a stack. expected names the interfaces that should have an address; other interfaces
// without an address are omitted. Slow queries are made only if a connection lacks
// something.
func Gather(ctx context.Context, conn *stackconn.Conn, conns []sockdiag.Connection, expected []string) (*Stack, error) {
	n, err := stacknet.Open(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	s := &Stack{Listens: map[uint16]bool{}, Speaks: map[netip.Addr]bool{}, NoRoute: map[Route]bool{}}
	if s.Links, err = links(n, expected); err != nil {
		return nil, err
	}
	for i := range conns {
		c := &conns[i]
		switch {
		case c.State == sockdiag.Listen:
			s.Listens[c.Local.Port()] = true
		case c.MPTCP != nil && !c.MPTCP.Fallback && c.MPTCP.RemoteKey:
			s.Speaks[c.Remote.Addr().Unmap()] = true
		}
	}
	var lacking []*sockdiag.Connection
	for i := range conns {
		if len(s.Explain(&conns[i])) > 0 {
			lacking = append(lacking, &conns[i])
		}
	}
	if len(lacking) == 0 {
		return s, nil
	}
	if s.Endpoints, err = n.Endpoints(); err != nil && !errors.Is(err, stacknet.ErrNoPathManager) {
		return nil, err
	}
	pm, err := stacknet.GetSysctl(ctx, conn, "net.mptcp.pm_type")
	s.Userspace = err == nil && strings.TrimSpace(pm) == "1" // old stacks have neither the setting nor another manager
	_, err = conn.ReadFile(ctx, stacknet.JoinFile)
	s.Again = err == nil
	if s.Counters, err = counted(ctx, conn); err != nil {
		return nil, err
	}
	if s.Past, err = past(ctx, conn, lacking); err != nil {
		return nil, err
	}
	return s, s.lookup(n, lacking)
}

// links lists the interfaces on which a subflow can be expected.
func links(n *stacknet.Netlink, expected []string) ([]Link, error) {
	states, err := n.Links()
	if err != nil {
		return nil, err
	}
	addrs, err := n.Addresses()
	if err != nil {
		return nil, err
	}
	var all []Link
	for _, state := range states {
		if state.Flags&unix.IFF_LOOPBACK != 0 {
			continue
		}
		l := Link{LinkState: state}
		for _, a := range addrs {
			const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
			if a.IfIndex == l.Index && a.Scope < unix.RT_SCOPE_LINK && a.Flags&unusable == 0 {
				l.Addrs = append(l.Addrs, a.Prefix.Addr().Unmap())
			}
		}
		vlan := slices.ContainsFunc(states, func(o stacknet.LinkState) bool { return strings.HasPrefix(o.Name, l.Name+".") })
		if len(l.Addrs) > 0 || slices.Contains(expected, l.Name) && !vlan {
			all = append(all, l)
		}
	}
	return all, nil
}

// past asks lklrun, which has recorded events from the start; nil if there is no record.
func past(ctx context.Context, conn *stackconn.Conn, conns []*sockdiag.Connection) (*mptcpevent.Past, error) {
	if conn.Hello().ABI == ctlproto.CTL_ABI_HOST {
		return nil, nil
	}
	var tokens []mptcpevent.Token
	for _, c := range conns {
		if c.MPTCP.Token.Known && !c.MPTCP.Fallback {
			tokens = append(tokens, mptcpevent.Token(c.MPTCP.Token.N))
		}
	}
	p, err := ask.Do(ctx, conn, ask.MPTCPPast, tokens, nil)
	switch {
	case err == nil:
		return &p, nil
	case ctx.Err() != nil, errors.Is(err, stackconn.ErrClosed):
		return nil, err
	}
	return nil, nil // an older lklrun, or a stack without events
}

// lookup finds joins without a route.
func (s *Stack) lookup(n *stacknet.Netlink, conns []*sockdiag.Connection) error {
	looked := map[Route]bool{}
	for _, c := range conns {
		peers := []netip.Addr{c.Remote.Addr().Unmap()}
		for i := range c.Subflows {
			if f := &c.Subflows[i]; f.State == sockdiag.SynSent {
				peers = append(peers, f.Remote.Addr().Unmap())
			}
		}
		for i := range s.Endpoints {
			for _, to := range peers {
				r := routeOf(&s.Endpoints[i], to)
				if looked[r] || r.From.Is4() != to.Is4() {
					continue
				}
				looked[r] = true
				ok, err := n.Reaches(to, r.From, r.IfIndex)
				if err != nil {
					return err
				}
				if !ok {
					s.NoRoute[r] = true
				}
			}
		}
	}
	return nil
}

// counted reads the MPTcpExt counters.
func counted(ctx context.Context, conn *stackconn.Conn) (map[string]int64, error) {
	set, err := counters.Read(ctx, conn)
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for i := range set {
		if name, ok := strings.CutPrefix(set[i].Name, "MPTcpExt"); ok {
			all[name] = set[i].Value.Int()
		}
	}
	return all, nil
}
