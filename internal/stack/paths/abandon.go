// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"context"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// alone counts, by address, the connections whose subflows all come from addrs.
func alone(ctx context.Context, conn *stackconn.Conn, addrs map[netip.Addr]bool) (map[netip.Addr]int, error) {
	conns, err := connections(ctx, conn)
	if err != nil {
		return nil, err
	}
	count := map[netip.Addr]int{}
	for _, locals := range conns {
		if !slices.ContainsFunc(locals, func(a netip.Addr) bool { return !addrs[a] }) {
			count[locals[len(locals)-1]]++
		}
	}
	return count, nil
}

// connections returns the MPTCP connections to other machines by token, with
// the local addresses of their subflows.
func connections(ctx context.Context, conn *stackconn.Conn) (map[mptcpevent.Token][]netip.Addr, error) {
	all, err := sockdiag.List(ctx, conn, sockdiag.TCP)
	if err != nil {
		return nil, err
	}
	conns := map[mptcpevent.Token][]netip.Addr{}
	for _, s := range all {
		// A connection that has fallen back to TCP does not use
		// endpoints.
		const real = sockdiag.FlagCapableRemote | sockdiag.FlagJoinLocal | sockdiag.FlagJoinRemote
		f := s.Subflow
		if f == nil || !f.Token.Known || f.Flags&real == 0 || s.State != sockdiag.Established || s.Remote.Addr().Unmap().IsLoopback() {
			continue
		}
		token := mptcpevent.Token(f.Token.N)
		conns[token] = append(conns[token], s.Local.Addr().Unmap())
	}
	return conns, nil
}

// cutOff returns the addresses of the endpoints on links without carrier.
func (s *State) cutOff(wants []Want) map[netip.Addr]bool {
	cut := map[netip.Addr]bool{}
	for _, l := range gather(s, wants) {
		for _, e := range s.Endpoints {
			if e.Ifindex == l.index && !l.carries {
				cut[e.Addr] = true
			}
		}
	}
	return cut
}

// abandon destroys subflows that the program has closed and whose local address
// is one of addrs. No packet can leave from these addresses, so such a subflow
// would retry for minutes, and the end of the run would wait for it. Other
// subflows have already sent its data.
func abandon(ctx context.Context, conn *stackconn.Conn, addrs []netip.Addr) error {
	from := map[netip.Addr]bool{}
	for _, a := range addrs {
		from[a] = true
	}
	all, err := sockdiag.List(ctx, conn, sockdiag.TCP)
	if err != nil {
		return err
	}
	var dead []sockdiag.Socket
	for _, s := range all {
		if from[s.Local.Addr().Unmap()] && s.Subflow != nil && s.State.Closing() {
			dead = append(dead, s)
		}
	}
	return sockdiag.Destroy(ctx, conn, dead)
}
