// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// Limits for values from a server.
const (
	minLease   = 2 * time.Second // a shorter lease would only cause traffic
	minMTU4    = 576             // RFC 791: every host accepts this size
	minPrefix  = 8               // the largest network of the address classes
	mostRoutes = 32
	mostDNS    = 6
	mostSearch = 8
	infinite   = 1<<32 - 1
)

// lease4 parses a server's offer or acknowledgement. It returns an error if the
// message contains no usable address and lease time. It ignores other invalid
// values.
func lease4(m *dhcpv4.DHCPv4, link *Link, now time.Time) (*Lease, error) {
	addr, ok := netip.AddrFromSlice(m.YourIPAddr.To4())
	if !ok || !usable(addr) {
		return nil, fmt.Errorf("%v is not usable as an interface address", m.YourIPAddr)
	}
	l := &Lease{From: now}
	if l.Server, ok = addr4(m.Options.Get(dhcpv4.OptionServerIdentifier)); !ok || !usable(l.Server) {
		return nil, errors.New("no server identifier")
	}
	if l.Server == addr {
		return nil, fmt.Errorf("the server offers its own address, %v", addr)
	}
	bits, err := prefix4(addr, m.Options.Get(dhcpv4.OptionSubnetMask))
	if err != nil {
		return nil, err
	}
	l.Addr = netip.PrefixFrom(addr, bits)
	if bits < 31 && (addr == l.Addr.Masked().Addr() || addr == config.Broadcast(l.Addr)) {
		return nil, fmt.Errorf("%v is the network or broadcast address of its network", l.Addr)
	}
	if err := l.times4(m); err != nil {
		return nil, err
	}
	if b := m.Options.Get(dhcpv4.OptionClasslessStaticRoute); len(b) > 0 {
		l.Routes = classless(b, l.Addr) // RFC 3442: this option overrides the router option
	} else if gw, ok := addr4(m.Options.Get(dhcpv4.OptionRouter)); ok && router(gw, l.Addr) {
		l.Routes = []Route{{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), GW: gw}}
	}
	for b := m.Options.Get(dhcpv4.OptionDomainNameServer); len(b) >= 4 && len(l.DNS) < mostDNS; b = b[4:] {
		if a, _ := addr4(b); usable(a) && !slices.Contains(l.DNS, a) {
			l.DNS = append(l.DNS, a)
		}
	}
	l.Domains = domains(m)
	if b := m.Options.Get(dhcpv4.OptionInterfaceMTU); len(b) == 2 {
		l.MTU = sensibleMTU(int(binary.BigEndian.Uint16(b)), link)
	}
	return l, nil
}

// addr4 returns the first address of an option.
func addr4(b []byte) (netip.Addr, bool) {
	if len(b) < 4 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(b[:4])), true
}

// prefix4 parses a subnet mask. Without one, it uses the address class.
func prefix4(a netip.Addr, mask []byte) (int, error) {
	if len(mask) == 0 {
		switch first := a.As4()[0]; {
		case first < 128:
			return 8, nil
		case first < 192:
			return 16, nil
		}
		return 24, nil
	}
	if len(mask) != 4 {
		return 0, fmt.Errorf("invalid subnet mask of %d bytes", len(mask))
	}
	m := binary.BigEndian.Uint32(mask)
	bits := 0
	for bits < 32 && m&(1<<(31-bits)) != 0 {
		bits++
	}
	if m != ^uint32(0)<<(32-bits) || bits < minPrefix {
		return 0, fmt.Errorf("subnet mask %d.%d.%d.%d", mask[0], mask[1], mask[2], mask[3])
	}
	return bits, nil
}

// times4 parses the lease time, T1 and T2 (RFC 2131, 4.4.5).
func (l *Lease) times4(m *dhcpv4.DHCPv4) error {
	read := func(code dhcpv4.OptionCode) (time.Duration, bool) {
		b := m.Options.Get(code)
		if len(b) != 4 {
			return 0, false
		}
		if s := binary.BigEndian.Uint32(b); s != infinite {
			return time.Duration(s) * time.Second, true
		}
		return stacknet.Forever, true
	}
	valid, ok := read(dhcpv4.OptionIPAddressLeaseTime)
	if !ok {
		return errors.New("no lease time")
	}
	if valid < minLease {
		return fmt.Errorf("a lease of %v", valid)
	}
	t1, _ := read(dhcpv4.OptionRenewTimeValue)
	t2, _ := read(dhcpv4.OptionRebindingTimeValue)
	l.times(valid, t1, t2)
	return nil
}

// times sets the times of renewal, rebinding and expiry. Invalid values of T1
// and T2 are replaced by the defaults.
func (l *Lease) times(valid, t1, t2 time.Duration) {
	l.valid = valid
	if valid == stacknet.Forever {
		l.t1, l.t2 = valid, valid
		return
	}
	if t2 <= 0 || t2 >= valid {
		t2 = valid / 8 * 7
	}
	if t1 <= 0 || t1 >= t2 {
		if t1 = valid / 2; t1 >= t2 {
			t1 = t2 / 2
		}
	}
	l.t1, l.t2 = t1, t2
	l.Renew, l.Rebind, l.Expires = l.From.Add(t1), l.From.Add(t2), l.From.Add(valid)
}

// left returns the time left until the lease is d old.
func (l *Lease) left(d time.Duration) time.Duration {
	if d == stacknet.Forever {
		return d
	}
	return max(d-time.Since(l.From), 0)
}

// router reports whether gw can be a router for own.
func router(gw netip.Addr, own netip.Prefix) bool {
	if !usable(gw) || gw == own.Addr() {
		return false
	}
	return own.Bits() >= 31 || gw != config.Broadcast(own) && gw != own.Masked().Addr()
}

// classless parses RFC 3442's option up to the first invalid entry.
func classless(b []byte, own netip.Prefix) []Route {
	var all []Route
	for len(b) > 0 && len(all) < mostRoutes {
		bits := int(b[0])
		size := (bits + 7) / 8
		if bits > 32 || len(b) < 1+size+4 {
			break
		}
		var dst [4]byte
		copy(dst[:], b[1:1+size])
		r := Route{Dst: netip.PrefixFrom(netip.AddrFrom4(dst), bits).Masked()}
		gw, _ := addr4(b[1+size:])
		b = b[1+size+4:]
		if !gw.IsUnspecified() {
			if !router(gw, own) {
				continue
			}
			r.GW = gw
		}
		first := r.Dst.Addr()
		switch {
		case bits == 0 && !r.GW.IsValid(): // a default route without gateway
		case first.As4()[0] >= 224 || bits >= 8 && !usable(first): // multicast, loopback and other invalid networks
		case r.Dst.IsSingleIP() && first == own.Addr(): // a route to our own address
		case slices.ContainsFunc(all, func(o Route) bool { return o.Dst == r.Dst }):
		default:
			all = append(all, r)
		}
	}
	return all
}

// sensibleMTU returns a valid MTU for the interface, or 0 if mtu is not
// possible.
func sensibleMTU(mtu int, link *Link) int {
	least := minMTU4
	if link.IPv6 {
		least = config.MinMTU6
	}
	if mtu < least || mtu > link.MTU {
		return 0
	}
	return mtu
}

// domains returns the search list (RFC 3397) or else the domain.
func domains(m *dhcpv4.DHCPv4) []string {
	var names []string
	if b := m.Options.Get(dhcpv4.OptionDNSDomainSearchList); len(b) > 0 && len(b) <= 1024 {
		if l, err := rfc1035label.FromBytes(b); err == nil {
			names = sensibleDomains(l.Labels)
		}
	}
	if len(names) == 0 {
		b := m.Options.Get(dhcpv4.OptionDomainName)
		names = sensibleDomains(strings.Fields(strings.TrimRight(string(b), "\x00")))
	}
	return names
}

// sensibleDomains removes invalid domain names, because the names go into a
// file that every program reads.
func sensibleDomains(names []string) []string {
	var good []string
	for _, n := range names {
		n = strings.TrimSuffix(n, ".")
		if n != "" && len(n) <= 253 && !slices.ContainsFunc(strings.Split(n, "."), badLabel) && !slices.Contains(good, n) && len(good) < mostSearch {
			good = append(good, n)
		}
	}
	return good
}

func badLabel(s string) bool {
	if s == "" || len(s) > 63 {
		return true
	}
	return strings.ContainsFunc(s, func(r rune) bool {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
		return !ok
	})
}
