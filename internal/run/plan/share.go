// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"

	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/pkg/config"
)

// portRangeSysctl is the setting that lklrun itself sets if an address is
// shared.
const portRangeSysctl = "net.ipv4.ip_local_port_range"

// ListenPorts returns the ports of servers at shared addresses.
func (p *Plan) ListenPorts() []uint16 {
	var all []uint16
	for _, l := range p.Listen {
		all = append(all, uint16(l))
	}
	return all
}

// shared lists the addresses that the stack shares with the host.
func (p *Plan) shared() []netip.Addr {
	var all []netip.Addr
	for i := range p.Links {
		all = append(all, p.Links[i].Shared...)
	}
	return all
}

// share checks the options that concern shared addresses.
func (p *Plan) share(run config.Run, found preflight.Facts) error {
	shared := p.shared()
	if len(shared) == 0 {
		// An interface with a shared address may be added at run time.
		for _, l := range run.Listen {
			p.note("--listen %d has no effect unless an interface shares an address with the host: on other addresses, all ports are reachable", l)
		}
		return nil
	}
	for _, s := range run.Sysctls {
		if s.Name == portRangeSysctl {
			return fmt.Errorf("--sysctl %s: the stack shares an address with the host, so --port-range sets its ports", s.Name)
		}
	}
	if found.NoGuard != "" && p.RSTGuard != config.GuardPrint {
		return fmt.Errorf("%s is an address of the host: %s", shared[0], found.NoGuard)
	}
	return guard.CheckListen(p.ListenPorts(), shared, found.Sockets)
}

// guardStep describes the changes to the host that shared addresses require.
func (p *Plan) guardStep(shared []netip.Addr) string {
	text := fmt.Sprintf("reserve %d ports", p.PortRange.Len())
	if p.PortRange.First != 0 {
		text = fmt.Sprintf("reserve the ports %v", p.PortRange)
	}
	for _, l := range p.Listen {
		text += fmt.Sprintf(", %d", l)
	}
	text += " of " + joinAddrs(shared) + " on the host"
	if p.RSTGuard == config.GuardOff {
		return text
	}
	return text + " and hide their packets from its kernel with " + p.guardedBy()
}

func (p *Plan) guardedBy() string {
	switch p.RSTGuard {
	case config.GuardNFT, config.GuardIPTables:
		return p.RSTGuard + " rules"
	}
	return "nft rules or, if unavailable, iptables rules"
}
