// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"net/netip"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Names finds the interface of a socket.
type Names struct {
	All     []string // of the interfaces, as the stack lists them
	byIndex map[int]string
	byAddr  map[netip.Addr]string
}

// ReadNames creates Names from the present interfaces and addresses of a stack.
func ReadNames(ctx context.Context, c *stackconn.Conn) (*Names, error) {
	links, err := Links(ctx, c)
	if err != nil {
		return nil, err
	}
	addrs, err := Addresses(ctx, c)
	if err != nil {
		return nil, err
	}
	return NewNames(links, addrs), nil
}

// NewNames creates Names from the stack's interfaces and addresses.
func NewNames(links []LinkState, addrs []Address) *Names {
	n := &Names{byIndex: map[int]string{}, byAddr: map[netip.Addr]string{}}
	for _, l := range links {
		n.All = append(n.All, l.Name)
		n.byIndex[l.Index] = l.Name
	}
	for _, a := range addrs {
		n.byAddr[a.Prefix.Addr()] = n.byIndex[a.IfIndex]
	}
	return n
}

// Of returns the interface with that index, to which a socket is bound, or else the
// interface that has the socket's local address. The result is empty if the socket may
// use any interface.
func (n *Names) Of(index int, local netip.Addr) string {
	if name, ok := n.byIndex[index]; ok {
		return name
	}
	return n.byAddr[local.Unmap()]
}
