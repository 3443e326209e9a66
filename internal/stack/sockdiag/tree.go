// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"cmp"
	"context"
	"net/netip"
)

// Connection is an MPTCP connection with the TCP sockets that carry it.
type Connection struct {
	Socket
	Subflows []Socket `json:"subflow_sockets"`

	Proc *ProcMPTCP `json:"proc_mptcp,omitempty"` // by ProcConnections, which knows no subflows
}

// Tree joins each MPTCP socket with its subflows, in the order of the MPTCP sockets. A
// subflow has its connection's inode once the connection belongs to a file
// (mptcp_sock_graft, net/mptcp/protocol.h). It has the connection's token once the
// handshake has progressed far enough. A listener is joined by its address.
func Tree(mptcp, tcp []Socket) []Connection {
	conns := make([]Connection, 0, len(mptcp))
	byInode, byToken, byListen := map[uint64]int{}, map[uint64]int{}, map[netip.AddrPort]int{}
	for i, s := range mptcp {
		conns = append(conns, Connection{Socket: s, Subflows: []Socket{}})
		if s.Inode != 0 {
			byInode[s.Inode] = i
		}
		if s.MPTCP != nil && s.MPTCP.Token.N != 0 {
			byToken[s.MPTCP.Token.N] = i
		}
		if s.State == Listen {
			byListen[s.Local] = i
		}
	}
	for _, s := range tcp {
		if s.Subflow == nil {
			continue
		}
		var i int
		var ok bool
		if s.Inode != 0 {
			i, ok = byInode[s.Inode]
		}
		if !ok && s.Subflow.Token.N != 0 {
			i, ok = byToken[s.Subflow.Token.N]
		}
		if !ok && s.State == Listen {
			i, ok = byListen[s.Local]
		}
		if ok {
			conns[i].Subflows = append(conns[i].Subflows, s)
		}
	}
	return conns
}

// Connections lists the stack's MPTCP connections with their subflows.
func Connections(ctx context.Context, d Dialer) ([]Connection, error) {
	mptcp, err := List(ctx, d, MPTCP)
	if err != nil {
		return nil, err
	}
	tcp, err := List(ctx, d, TCP)
	if err != nil {
		return nil, err
	}
	return Tree(mptcp, tcp), nil
}

// BySubflow orders subflows: the one that started the connection first, then by interface
// and addresses.
func BySubflow(a, b Socket) int {
	return cmp.Or(
		cmp.Compare(joined(a), joined(b)),
		cmp.Compare(a.Iface, b.Iface),
		a.Local.Compare(b.Local),
		a.Remote.Compare(b.Remote),
	)
}

// joined is 1 for a subflow that has joined an existing connection.
func joined(s Socket) int {
	if s.Subflow != nil && s.Subflow.Flags&(FlagJoinLocal|FlagJoinRemote) != 0 {
		return 1
	}
	return 0
}
