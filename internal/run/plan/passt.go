// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"

	"github.com/lklrun/lklrun/internal/link/gateway"
	"github.com/lklrun/lklrun/pkg/config"
)

// passt fills in the configuration of an interface served by the program passt.
// Its addresses are the configured ones or those of a private network, unless
// passt hands out the host's addresses by DHCP and router advertisements.
func (p *Plan) passt(l *Link, i *config.Interface, ipv6 bool) error {
	c, err := gateway.PasstConfig(p.gateways(), i, ipv6)
	if err != nil {
		return fmt.Errorf("--if %q: %w", i.String(), err)
	}
	l.MTU = c.MTU
	if i.DHCP || i.DHCP6 || i.SLAAC {
		if len(l.Addrs) > 0 {
			return fmt.Errorf("--if %q: ip: passt hands out the host's own address; leave out the address, or dhcp, dhcp6 and slaac", i.String())
		}
		l.Gateway = &gateway.Config{MTU: c.MTU}
		return nil
	}
	l.Gateway = &c
	l.Addrs, l.GW4 = []netip.Prefix{c.Address}, c.Gateway
	if c.Address6.IsValid() {
		l.Addrs, l.GW6 = append(l.Addrs, c.Address6), c.Gateway6
	}
	p.note("%s is passt: TCP ends there, the host's kernel carries it on (MPTCP and congestion control of the stack do not reach the wire)", l.Name)
	return nil
}

// lookPasst gathers the facts for passt.
func (f *Facts) lookPasst() error {
	if _, err := gateway.FindPasst(); err != nil {
		return err
	}
	f.IPv6 = routeIPv6()
	return nil
}
