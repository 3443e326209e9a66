// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stackconn"
)

// The in-kernel path manager's interface, include/uapi/linux/mptcp_pm.h and
// include/uapi/linux/mptcp.h.
const (
	pmName    = "mptcp_pm"
	pmVersion = 1

	pmCmdAddAddr   = 1
	pmCmdSetLimits = 5

	pmAttrAddr        = 1
	pmAttrRcvAddAddrs = 2
	pmAttrSubflows    = 3

	pmAddrFamily = 1
	pmAddrAddr4  = 3
	pmAddrAddr6  = 4
	pmAddrFlags  = 6
	pmAddrIfIdx  = 7

	pmFlagSubflow = 1 << 1
)

// configureMPTCP sets limits and endpoints, where cfg asks for either.
func configureMPTCP(ctx context.Context, c *stackconn.Conn, states []LinkState, cfg Config) error {
	needed := cfg.MPTCP != nil
	for _, l := range cfg.Links {
		needed = needed || l.Endpoint && len(l.Addrs) > 0
	}
	if !needed {
		return nil
	}
	nl, err := c.Netlink(ctx, unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	g := genetlink.NewConn(nl)
	defer g.Close()
	pm, err := g.GetFamily(pmName)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("configuring MPTCP: this stack has no MPTCP path manager (generic netlink family mptcp_pm)")
	}
	if err != nil {
		return fmt.Errorf("configuring MPTCP: %w", said(err))
	}
	if m := cfg.MPTCP; m != nil {
		if err := setLimits(g, pm, *m); err != nil {
			return fmt.Errorf("setting the MPTCP limits to %d subflows and %d accepted addresses: %w", m.Subflows, m.AddAddrAccepted, err)
		}
	}
	for _, l := range cfg.Links {
		if !l.Endpoint {
			continue
		}
		state, _ := findLink(states, l.Name) // configureLinks has found it before
		for _, p := range l.Addrs {
			if err := addEndpoint(g, pm, p.Addr(), state.Index); err != nil {
				return fmt.Errorf("adding the MPTCP endpoint %v on %s: %w", p.Addr(), l.Name, err)
			}
		}
	}
	return nil
}

func setLimits(g *genetlink.Conn, pm genetlink.Family, m MPTCPLimits) error {
	return pmRequest(g, pm, pmCmdSetLimits, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(pmAttrRcvAddAddrs, uint32(m.AddAddrAccepted))
		ae.Uint32(pmAttrSubflows, uint32(m.Subflows))
	})
}

// addEndpoint makes addr an address from which a subflow joins each connection,
// by its own interface.
func addEndpoint(g *genetlink.Conn, pm genetlink.Family, addr netip.Addr, ifindex int) error {
	err := pmRequest(g, pm, pmCmdAddAddr, func(ae *netlink.AttributeEncoder) {
		ae.Nested(pmAttrAddr, func(ae *netlink.AttributeEncoder) error {
			ae.Uint16(pmAddrFamily, uint16(family(addr)))
			if addr.Is4() {
				ae.Bytes(pmAddrAddr4, addr.AsSlice())
			} else {
				ae.Bytes(pmAddrAddr6, addr.AsSlice())
			}
			ae.Uint32(pmAddrFlags, pmFlagSubflow)
			ae.Uint32(pmAddrIfIdx, uint32(ifindex))
			return nil
		})
	})
	if errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

func pmRequest(g *genetlink.Conn, pm genetlink.Family, cmd uint8, fill func(*netlink.AttributeEncoder)) error {
	attrs, err := attributes(fill)
	if err != nil {
		return err
	}
	_, err = g.Execute(genetlink.Message{
		Header: genetlink.Header{Command: cmd, Version: pmVersion},
		Data:   attrs,
	}, pm.ID, netlink.Request|netlink.Acknowledge)
	return said(err)
}
