// SPDX-License-Identifier: Apache-2.0

package mptcpdiag

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// Explain returns the reasons for each of conns: why it is plain TCP, or why it has no
// subflow over an interface. conns are all connections and listeners of the stack.
// ifaces are the interfaces that lklrun created. Explain omits other interfaces without
// an address.
func Explain(ctx context.Context, conn *stackconn.Conn, conns []sockdiag.Connection, ifaces []instance.Interface) ([][]Reason, error) {
	n, err := stacknet.Open(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	all, err := links(n, ifaces)
	if err != nil {
		return nil, err
	}
	s := newStack(all, conns)
	if err := s.read(ctx, conn, n, s.needs(conns)); err != nil {
		return nil, err
	}
	reasons := make([][]Reason, len(conns))
	for i := range conns {
		reasons[i] = s.explain(&conns[i])
	}
	return reasons, nil
}

// read reads the data in need from the stack. These queries are slow, and most calls need
// no data.
func (s *stack) read(ctx context.Context, conn *stackconn.Conn, n *stacknet.Netlink, need needs) (err error) {
	if need.endpoints {
		if s.Endpoints, err = n.Endpoints(); err != nil && !errors.Is(err, stacknet.ErrNoPathManager) {
			return err
		}
		pm, err := stacknet.GetSysctl(ctx, conn, "net.mptcp.pm_type")
		s.Userspace = err == nil && strings.TrimSpace(pm) == "1" // old stacks have neither this setting nor a userspace path manager
		_, err = conn.ReadFile(ctx, stacknet.JoinFile)
		s.Retries = err == nil
		if s.Past, err = past(ctx, conn, need.events); err != nil {
			return err
		}
	}
	if need.counters {
		if s.Counters, err = counted(ctx, conn); err != nil {
			return err
		}
	}
	return s.lookup(n, need.routes)
}

// links lists the interfaces over which a connection should have a subflow.
func links(n *stacknet.Netlink, ifaces []instance.Interface) ([]Link, error) {
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
		own := slices.IndexFunc(ifaces, func(i instance.Interface) bool { return i.Name == l.Name })
		if own >= 0 {
			l.Gateway, l.CLAT = ifaces[own].Type == config.DefaultType, ifaces[own].Type == "clat"
		}
		for _, a := range addrs {
			const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
			if a.IfIndex == l.Index && a.Scope < unix.RT_SCOPE_LINK && a.Flags&unusable == 0 {
				l.Addrs = append(l.Addrs, a.Prefix.Addr().Unmap())
			}
		}
		vlan := slices.ContainsFunc(states, func(o stacknet.LinkState) bool { return strings.HasPrefix(o.Name, l.Name+".") })
		if len(l.Addrs) > 0 || own >= 0 && !vlan {
			all = append(all, l)
		}
	}
	return all, nil
}

// past asks lklrun for the events that it has recorded from the start. It returns nil if
// there is no record.
func past(ctx context.Context, conn *stackconn.Conn, tokens []mptcpevent.Token) (*mptcpevent.Past, error) {
	if conn.Hello().ABI == ctlproto.CTL_ABI_HOST {
		return nil, nil
	}
	p, err := rpc.Do(ctx, conn, rpc.MPTCPPast, tokens, nil)
	switch {
	case err == nil:
		return &p, nil
	case ctx.Err() != nil, errors.Is(err, stackconn.ErrClosed), errors.Is(err, rpc.ErrNoAnswer):
		return nil, err
	}
	return nil, nil // the lklrun is older, or the stack has no events
}

// lookup records which joins to the peers have no route.
func (s *stack) lookup(n *stacknet.Netlink, peers []netip.Addr) error {
	looked := map[Route]bool{}
	for _, to := range peers {
		for i := range s.Endpoints {
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
	return nil
}

// counted reads the MPTcpExt counters of the stack.
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
