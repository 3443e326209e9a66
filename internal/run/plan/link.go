// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/lklrun/lklrun/internal/link/user/gateway"
	"github.com/lklrun/lklrun/internal/stack"
	"github.com/lklrun/lklrun/pkg/config"
)

// Link is an interface of the stack.
type Link struct {
	Name     string          `json:"name"` // in the stack: eth0
	Type     string          `json:"type"`
	Device   string          `json:"device,omitempty"` // on the host
	FD       int             `json:"fd,omitempty"`
	Create   bool            `json:"create,omitempty"` // tap, macvtap: it does not exist yet
	MAC      config.MAC      `json:"mac,omitzero"`
	MTU      int             `json:"mtu"`
	Addrs    []netip.Prefix  `json:"addrs,omitempty"`
	GW4      netip.Addr      `json:"gw,omitzero"`
	GW6      netip.Addr      `json:"gw6,omitzero"`
	Table    int             `json:"table"`
	Endpoint bool            `json:"endpoint,omitempty"`
	Gateway  *gateway.Config `json:"-"`                // of type user
	RawIP    bool            `json:"raw_ip,omitempty"` // no link layer
	Shared   []netip.Addr    `json:"shared,omitempty"` // raw, rawip: the members of Addrs that the host has too

	DHCP     bool         `json:"dhcp,omitempty"`
	DHCP6    bool         `json:"dhcp6,omitempty"`
	SLAAC    bool         `json:"slaac,omitempty"`
	DNS      []netip.Addr `json:"dns,omitempty"`
	Group    int          `json:"group,omitempty"`
	Qdisc    string       `json:"qdisc,omitempty"`
	Offload  string       `json:"offload,omitempty"`
	Backup   bool         `json:"backup,omitempty"` // flag of the MPTCP endpoint
	Signal   bool         `json:"signal,omitempty"`
	Fullmesh bool         `json:"fullmesh,omitempty"`
	VLAN     int          `json:"vlan,omitempty"`
	Bridge   string       `json:"bridge,omitempty"`     // tap
	NAT      bool         `json:"nat,omitempty"`        // tap
	Queue    bool         `json:"multiqueue,omitempty"` // tap: one of several queues, which other processes can have

	HostAddrs []netip.Prefix `json:"host_addrs,omitempty"` // tap with NAT: addresses on the host's side

	Mode  string             `json:"mode,omitempty"` // macvtap
	Neigh []config.Neighbour `json:"neigh,omitempty"`
}

// Host describes the host's end of the link, for messages.
func (l *Link) Host() string {
	switch l.Type {
	case config.TypeFD:
		return fmt.Sprint(l.FD)
	}
	return l.Device
}

// firstMetric is the metric of eth0's default routes in the main table. Each
// following interface gets a metric one higher. A socket that is bound to no
// address therefore uses eth0; the first subflow of an MPTCP connection is one
// example.
const firstMetric = 100

// Metric returns the metric of the link's default routes in the main table.
func (l *Link) Metric() int {
	n := 0
	if _, err := fmt.Sscanf(l.Name, "eth%d", &n); err != nil {
		return firstMetric + MaxLinks // the link has an unusual name
	}
	return firstMetric + n
}

// link plans the interface ethN, given the plan's other interfaces.
func (p *Plan) link(n int, i config.Interface, facts Facts) (Link, error) {
	l := Link{
		Name: fmt.Sprintf("eth%d", n), Type: i.Type, Device: i.Device, FD: i.FD,
		MAC: i.MAC, MTU: i.MTU, GW4: i.GW, GW6: i.GW6,
		Addrs: append(append([]netip.Prefix(nil), i.IP...), i.IP6...),
		Table: cmp.Or(i.Table, config.FirstTable+n), Endpoint: p.Stack.MPTCP,
		DHCP: i.DHCP, DHCP6: i.DHCP6, SLAAC: i.SLAAC, DNS: i.DNS,
		Group: i.Group, Qdisc: i.Qdisc, Offload: i.Offload, VLAN: i.VLAN,
		Backup: i.Backup, Signal: i.Signal, Fullmesh: i.Fullmesh,
		Bridge: i.Bridge, NAT: i.NAT, Queue: i.Multiqueue, Mode: i.Mode, Neigh: i.Neigh,
	}
	switch i.Type {
	case config.TypeUser:
		if err := l.user(p.gateways(), i, facts.Kernel6); err != nil {
			return l, err
		}
		p.noteUser(&l, facts)
	case config.TypeTap:
		if err := p.tap(&l, facts); err != nil {
			return l, fmt.Errorf("--if %q: %w", i.String(), err)
		}
	case config.TypeMacvtap:
		if err := p.macvtap(&l, facts.Macvtaps[i.Device], facts.Machine); err != nil {
			return l, fmt.Errorf("--if %q: %w", i.String(), err)
		}
	case config.TypeRaw, config.TypeRawIP:
		l.RawIP = i.Type == config.TypeRawIP
		d := facts.Devices[i.Device]
		if err := l.packet(&i, d); err != nil {
			return l, err
		}
		if !d.Up {
			p.note("%s is down on the host, or without carrier, so %s will carry nothing until it is up", i.Device, l.Name)
		}
	case config.TypeFD:
		if l.RawIP = facts.FDs[i.FD].RawIP(); l.RawIP && (!i.MAC.IsZero() || i.DHCP || i.DHCP6 || i.VLAN != 0) {
			return l, fmt.Errorf("--if %q: descriptor %d carries IP packets, without Ethernet addresses; leave out mac, dhcp, dhcp6 and vlan", i.String(), i.FD)
		}
	}
	if l.RawIP {
		if err := p.Stack.CheckRawIP(); err != nil {
			return l, fmt.Errorf("--if %q: %w", i.String(), err)
		}
	}
	for j := range p.Links {
		if err := l.beside(&p.Links[j]); err != nil {
			return l, fmt.Errorf("--if %q: %w", i.String(), err)
		}
	}
	if l.MTU == 0 {
		l.MTU = defaultMTU
	}
	if l.MAC.IsZero() && i.Type != config.TypeUser && !l.RawIP {
		l.MAC = stableMAC(facts.Machine, &i)
	}
	if len(l.Addrs) == 0 && !l.getsAddress() {
		p.note("%s has no address; give it one with --if %s,ip=ADDRESS/PREFIX", l.Name, i.Target())
	}
	return l, nil
}

// gateways returns the number of the next free gateway network.
func (p *Plan) gateways() int {
	taken := func(n int) bool {
		return slices.ContainsFunc(p.Links, func(l Link) bool {
			return l.Gateway != nil && l.Gateway.Address == gateway.Default(n).Address
		})
	}
	n := 0
	for taken(n) {
		n++
	}
	return n
}

// beside returns an error if the link conflicts with another one. It includes
// addresses that the gateway chose, and links added at run time.
func (l *Link) beside(other *Link) error {
	for _, a := range l.Addrs {
		if slices.ContainsFunc(other.Addrs, func(p netip.Prefix) bool { return p.Addr() == a.Addr() }) {
			return fmt.Errorf("address %s is that of %s already", a.Addr(), other.Name)
		}
	}
	if !l.MAC.IsZero() && l.MAC == other.MAC {
		return fmt.Errorf("mac %s is that of %s already", l.MAC, other.Name)
	}
	if l.Table == other.Table {
		return fmt.Errorf("table %d is that of %s already", l.Table, other.Name)
	}
	return nil
}

// More plans an additional interface for a run in progress with the links have.
// It returns the interface and notes for the user. The facts come from
// LookMore.
func (p *Plan) More(i config.Interface, have []Link, facts Facts) (Link, []string, error) {
	if p.Stack.ABI == stack.ABIHost {
		return Link{}, nil, errors.New("the stack is the host's own kernel, with the host's own interfaces")
	}
	if len(have) >= MaxLinks {
		return Link{}, nil, fmt.Errorf("--if %q: there are %d interfaces; at most %d are possible", i.String(), len(have), MaxLinks)
	}
	n := 0
	for slices.ContainsFunc(have, func(l Link) bool {
		// The stack may have renamed the link, which still uses its
		// table.
		return l.Name == fmt.Sprintf("eth%d", n) || i.Table == 0 && l.Table == config.FirstTable+n
	}) {
		n++
	}
	with := Plan{Stack: p.Stack, Links: have}
	l, err := with.link(n, i, facts)
	return l, with.Notes, err
}

// getsAddress reports whether the link gets an address from a source other than
// the user.
func (l *Link) getsAddress() bool {
	return l.DHCP || l.DHCP6 || l.SLAAC || l.NAT
}

// stableMAC returns an Ethernet address that is the same in each run, because
// neighbours cache the address of an IP address for a while. It differs between
// machines.
func stableMAC(machine string, i *config.Interface) config.MAC {
	what := machine + " " + i.Target()
	for _, p := range slices.Concat(i.IP, i.IP6) {
		what += " " + p.Addr().String()
	}
	sum := sha256.Sum256([]byte(what))
	mac := config.MAC(sum[:6])
	mac[0] = mac[0]&^1 | 2 // unicast, locally administered (IEEE 802, 8.2)
	return mac
}

// user fills in the configuration that the user-mode gateway determines.
func (l *Link) user(n int, i config.Interface, ipv6 bool) error {
	c := gateway.Default(n)
	if len(i.IP) > 0 {
		var err error
		if c, err = gateway.Around(i.IP[0], i.GW); err != nil {
			return fmt.Errorf("--if %q: %w", i.String(), err)
		}
	}
	if i.MTU != 0 {
		c.MTU = i.MTU
	}
	l.Gateway = &c
	l.Addrs, l.GW4, l.MTU = []netip.Prefix{c.Address}, c.Gateway, c.MTU
	if ipv6 && c.MTU >= config.MinMTU6 {
		c = c.WithIPv6(n)
		l.Addrs, l.GW6 = append(l.Addrs, c.Address6), c.Gateway6
	}
	return nil
}

func (p *Plan) noteUser(l *Link, facts Facts) {
	p.note("%s is the user-mode gateway: TCP ends here, the host's kernel carries it on (MPTCP and congestion control of the stack do not reach the wire)", l.Name)
	for _, a := range facts.Addrs {
		if a.Addr().Is4() && a.Bits() > 0 && a.Masked().Overlaps(l.Gateway.Address.Masked()) {
			p.note("%s has the network %s, which is also one of the host's: its machines are out of reach; choose another with --if user,ip=ADDRESS/PREFIX", l.Name, l.Gateway.Address.Masked())
			return
		}
	}
}
