// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// socketKinds contains the flags that select the kinds of sockets.
type socketKinds struct {
	tcp, udp, raw, mptcp, unix, packet bool
	v4, v6                             bool
	families                           []string
}

// familyNames lists the values of -f, which are those of ss.
var familyNames = []string{"inet", "inet6", "unix", "link", "netlink"}

func (k *socketKinds) flags(f *pflag.FlagSet) {
	f.BoolVarP(&k.tcp, "tcp", "t", false, "show TCP sockets")
	f.BoolVarP(&k.udp, "udp", "u", false, "show UDP and UDP-Lite sockets")
	f.BoolVarP(&k.raw, "raw", "w", false, "show raw IP and unprivileged ping sockets")
	f.BoolVarP(&k.mptcp, "mptcp", "M", false, "show MPTCP sockets")
	f.BoolVarP(&k.unix, "unix", "x", false, "show unix sockets of the stack itself")
	f.BoolVarP(&k.packet, "packet", "0", false, "show packet sockets of the stack itself")
	f.BoolVarP(&k.v4, "ipv4", "4", false, "show only IPv4 sockets")
	f.BoolVarP(&k.v6, "ipv6", "6", false, "show only IPv6 sockets")
	f.StringSliceVarP(&k.families, "family", "f", nil, "show only sockets of `FAMILY`: "+strings.Join(familyNames, ", "))
}

// kind is a kind of sockets to list. The stack must support the kind only if the
// user has named it.
type kind struct {
	proto sockdiag.Proto
	named bool
}

// kinds returns the selected kinds of sockets.
func (k *socketKinds) kinds() (kinds []kind) {
	add := func(on bool, proto sockdiag.Proto, others ...sockdiag.Proto) {
		if !on {
			return
		}
		kinds = append(kinds, kind{proto, true})
		for _, o := range others {
			kinds = append(kinds, kind{o, false})
		}
	}
	add(k.tcp, sockdiag.TCP)
	add(k.mptcp, sockdiag.MPTCP)
	add(k.udp, sockdiag.UDP, sockdiag.UDPLite)
	add(k.raw, sockdiag.Raw, sockdiag.ICMP)
	inet := len(kinds) > 0
	add(k.packet || slices.Contains(k.families, "link"), sockdiag.Packet)
	add(slices.Contains(k.families, "netlink"), sockdiag.Netlink)
	add(k.unix || slices.Contains(k.families, "unix"), sockdiag.Unix)
	// If an Internet family is given without a protocol, it selects all protocols.
	if inet || len(kinds) > 0 && !k.v4 && !k.v6 && !slices.Contains(k.families, "inet") && !slices.Contains(k.families, "inet6") {
		return kinds
	}
	for _, p := range []sockdiag.Proto{sockdiag.TCP, sockdiag.MPTCP, sockdiag.UDP, sockdiag.UDPLite, sockdiag.Raw, sockdiag.ICMP} {
		kinds = append(kinds, kind{p, false})
	}
	return kinds
}

// has reports whether a socket's Internet family is selected.
func (k *socketKinds) has(s sockdiag.Socket) bool {
	v4, v6 := k.v4 || slices.Contains(k.families, "inet"), k.v6 || slices.Contains(k.families, "inet6")
	switch {
	case v4 == v6:
		return true
	case v4:
		return s.Family != unix.AF_INET6
	}
	return s.Family != unix.AF_INET
}

// gather lists the sockets selected by o, with their owners.
func gather(ctx context.Context, conn *stackconn.Conn, o *netstatOptions) ([]sockdiag.Socket, error) {
	var all []sockdiag.Socket
	for _, k := range o.kinds() {
		some, err := list(ctx, conn, k.proto)
		if errors.Is(err, sockdiag.ErrUnsupported) && !k.named {
			continue // the stack does not support this kind
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	names, err := stacknet.ReadNames(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := checkInterfaces(names, o.filter.Devices()); err != nil {
		return nil, err
	}
	setInterfaces(names, all)
	all = slices.DeleteFunc(all, func(s sockdiag.Socket) bool { return !o.wants(s) })
	if err := owners.Attribute(ctx, conn, all); err != nil {
		return nil, err
	}
	sockdiag.Sort(all)
	return all, nil
}

func list(ctx context.Context, conn *stackconn.Conn, p sockdiag.Proto) ([]sockdiag.Socket, error) {
	if p == sockdiag.ICMP {
		return sockdiag.Pings(ctx, conn)
	}
	return sockdiag.List(ctx, conn, p)
}

// wants reports whether a socket is selected. If the filter contains states, the
// filter alone decides which states are selected.
func (o *netstatOptions) wants(s sockdiag.Socket) bool {
	if !o.has(s) || !o.filter.Match(s) {
		return false
	}
	// Like ss, count sockets that wait for datagrams as listening.
	listening := s.State == sockdiag.Listen || s.State == sockdiag.Close && s.Proto != sockdiag.TCP && s.Proto != sockdiag.MPTCP
	switch {
	case o.filter.HasStates():
		return true
	case o.listening:
		return listening
	case o.connected:
		return !listening
	}
	return true
}

// Annotate adds processes and interfaces to sockets.
func Annotate(ctx context.Context, conn *stackconn.Conn, sockets []sockdiag.Socket) error {
	names, err := stacknet.ReadNames(ctx, conn)
	if err != nil {
		return err
	}
	setInterfaces(names, sockets)
	return owners.Attribute(ctx, conn, sockets)
}

// checkInterfaces checks that the stack has the interfaces of a filter.
func checkInterfaces(names *stacknet.Names, devices []string) error {
	for _, name := range devices {
		if !slices.Contains(names.All, name) {
			return exit.Usagef("filter: dev %q: the stack has no such interface; expected one of %s", name, strings.Join(names.All, ", "))
		}
	}
	return nil
}

func setInterfaces(names *stacknet.Names, sockets []sockdiag.Socket) {
	for i := range sockets {
		sockets[i].Iface = names.Of(sockets[i].IfIndex, sockets[i].Local.Addr())
	}
}

func familyName(f int) string {
	switch f {
	case unix.AF_INET:
		return "inet"
	case unix.AF_INET6:
		return "inet6"
	case unix.AF_UNIX:
		return "unix"
	case unix.AF_PACKET:
		return "packet"
	case unix.AF_NETLINK:
		return "netlink"
	}
	return fmt.Sprint(f)
}
