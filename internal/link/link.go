// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/lklrun/lklrun/pkg/config"
)

// Link is the plan of an interface of the stack. It is pure data.
type Link struct {
	Name     string         `json:"name"` // in the stack: eth0
	Type     string         `json:"type"`
	Device   string         `json:"device,omitempty"` // on the host
	FD       int            `json:"fd,omitempty"`     // the number of an inherited descriptor; 0: none
	MAC      config.MAC     `json:"mac,omitzero"`
	MTU      int            `json:"mtu"`
	Addrs    []netip.Prefix `json:"addrs,omitempty"`
	GW4      netip.Addr     `json:"gw,omitzero"`
	GW6      netip.Addr     `json:"gw6,omitzero"`
	Table    int            `json:"table"`
	Endpoint bool           `json:"endpoint,omitempty"`
	RawIP    bool           `json:"raw_ip,omitempty"` // no link layer
	Shared   []netip.Addr   `json:"shared,omitempty"` // the members of Addrs that the host has too

	DHCP     bool               `json:"dhcp,omitempty"`
	DHCP6    bool               `json:"dhcp6,omitempty"`
	SLAAC    bool               `json:"slaac,omitempty"`
	DNS      []netip.Addr       `json:"dns,omitempty"`
	Search   []string           `json:"search,omitempty"` // domains
	Group    int                `json:"group,omitempty"`
	Qdisc    string             `json:"qdisc,omitempty"`
	Offload  string             `json:"offload,omitempty"`
	Backup   bool               `json:"backup,omitempty"` // flag of the MPTCP endpoint
	Signal   bool               `json:"signal,omitempty"`
	Fullmesh bool               `json:"fullmesh,omitempty"`
	VLAN     int                `json:"vlan,omitempty"`
	Neigh    []config.Neighbour `json:"neigh,omitempty"`
	Routes   []config.Route     `json:"routes,omitempty"`

	// Impair is the step of `lklctl path` that impairs the packets that the
	// link receives, as words.
	Impair []string `json:"impair,omitempty"`

	// Reach are the destinations of a link without link layer; empty: all.
	Reach []netip.Prefix `json:"reach,omitempty"`

	// OnlyDNS means that names are resolved only by DNS, and not by the servers
	// of other links.
	OnlyDNS bool `json:"only_dns,omitempty"`

	// Managed means that lklrun serves the other end of the link and chose
	// its addresses. NameServer is at that end, and resolves names as the
	// host does.
	Managed    bool       `json:"managed,omitempty"`
	NameServer netip.Addr `json:"name_server,omitzero"`

	// HostLoopback is an address at the other end of the link that stands for
	// the host's own 127.0.0.1.
	HostLoopback netip.Addr `json:"host_loopback,omitzero"`

	// DetectDuplicates enables duplicate address detection for the link's
	// IPv6 addresses.
	DetectDuplicates bool `json:"detect_duplicates,omitempty"`

	// TypePlan is the part of the plan that only this type has: the P of its
	// Driver. It is nil if P has no fields.
	TypePlan any `json:"own,omitempty"`
}

// New returns the plan of the interface ethN with the values of its
// configuration.
func New(n int, i *config.Interface) Link {
	l := Link{
		Name: fmt.Sprintf("eth%d", n), Type: i.Type, Device: i.Device, FD: i.FD,
		MAC: i.MAC, MTU: i.MTU, GW4: i.GW, GW6: i.GW6,
		Addrs: slices.Concat(i.IP, i.IP6), Table: i.Table,
		DHCP: i.DHCP, DHCP6: i.DHCP6, SLAAC: i.SLAAC, DNS: i.DNS,
		Group: i.Group, Qdisc: i.Qdisc, Offload: i.Offload, VLAN: i.VLAN,
		Backup: i.Backup, Signal: i.Signal, Fullmesh: i.Fullmesh, Neigh: i.Neigh, Routes: i.Routes,
	}
	if l.Table == 0 {
		l.Table = config.FirstTable + n
	}
	return l
}

// UnmarshalJSON parses a link. The type determines the form of Own.
func (l *Link) UnmarshalJSON(text []byte) error {
	type plain Link // without this method
	with := struct {
		*plain
		Own json.RawMessage `json:"own"`
	}{plain: (*plain)(l)}
	if err := json.Unmarshal(text, &with); err != nil {
		return err
	}
	l.TypePlan = nil
	if len(with.Own) == 0 || bytes.Equal(with.Own, []byte("null")) {
		return nil
	}
	d, err := of(l.Type)
	if err == nil {
		l.TypePlan, err = d.part(with.Own)
	}
	return err
}

// Host describes the host's end of the link, for messages.
func (l *Link) Host() string {
	if l.FD != 0 {
		return strconv.Itoa(l.FD)
	}
	return l.Device
}

// firstMetric is the metric of eth0's default routes in the main table. The
// metric of each further interface is higher by one. A socket that is not bound
// to an address therefore uses eth0. One example is the first subflow of an
// MPTCP connection.
const firstMetric = 100

// Metric returns the metric of the link's default routes in the main table.
func (l *Link) Metric() int {
	n := 0
	if _, err := fmt.Sscanf(l.Name, "eth%d", &n); err != nil {
		return firstMetric + config.MaxInterfaces // the link has an unusual name
	}
	return firstMetric + n
}

// Leases reports whether the link gets addresses from its network.
func (l *Link) Leases() bool { return l.DHCP || l.DHCP6 || l.SLAAC }

// IPv6 reports whether the link has or will get IPv6 addresses.
func (l *Link) IPv6() bool {
	return l.DHCP6 || l.SLAAC || slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
}

// StableMAC returns an Ethernet address that is the same in each run, because
// neighbours cache the address of an IP address for a while. It differs between
// machines.
func StableMAC(machine string, i *config.Interface) config.MAC {
	what := machine + " " + i.Target()
	for _, p := range slices.Concat(i.IP, i.IP6) {
		what += " " + p.Addr().String()
	}
	sum := sha256.Sum256([]byte(what))
	mac := config.MAC(sum[:6])
	mac[0] = mac[0]&^1 | 2 // unicast, locally administered (IEEE 802, 8.2)
	return mac
}
