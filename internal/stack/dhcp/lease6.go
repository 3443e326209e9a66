// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// errRefused reports that a server has no lease for us, or no longer has one.
var errRefused = errors.New("refused")

// lease6 parses a server's advertisement or reply. It returns errRefused if the
// server has no lease for us, and another error if the message is invalid.
func lease6(m *dhcpv6.Message, iaid [4]byte, now time.Time) (*Lease, error) {
	l, err := info6(m, now)
	if err != nil {
		return nil, err
	}
	if s := m.Options.Status(); s != nil && s.StatusCode != iana.StatusSuccess {
		return nil, fmt.Errorf("%w: %s", errRefused, s.StatusCode)
	}
	for _, ia := range m.Options.IANA() {
		if ia.IaId != iaid {
			continue
		}
		if s := ia.Options.Status(); s != nil && s.StatusCode != iana.StatusSuccess {
			return nil, fmt.Errorf("%w: %s", errRefused, s.StatusCode)
		}
		if ia.T1 > ia.T2 && ia.T2 > 0 { // RFC 8415, 21.4
			return nil, fmt.Errorf("T1 %v is after T2 %v", ia.T1, ia.T2)
		}
		for _, a := range ia.Options.Addresses() {
			addr, ok := netip.AddrFromSlice(a.IPv6Addr)
			valid, preferred := forever(a.ValidLifetime), forever(a.PreferredLifetime)
			if !ok || !addr.Is6() || !usable(addr) || addr.IsLinkLocalUnicast() || valid < minLease || preferred > valid {
				continue
			}
			l.Addr = netip.PrefixFrom(addr, 128) // the router announces the prefix of the link
			l.preferred = preferred
			l.times(valid, cap6(ia.T1, preferred/2), cap6(ia.T2, preferred/10*8))
			return l, nil
		}
		return nil, fmt.Errorf("%w: no address in the answer", errRefused)
	}
	return nil, fmt.Errorf("%w: nothing in the answer is for us", errRefused)
}

// forever converts a lifetime.
func forever(d time.Duration) time.Duration {
	if d >= infinite*time.Second {
		return stacknet.Forever
	}
	return d
}

// cap6 returns T1 or T2. If the server sends t = 0, the client uses its own
// value.
func cap6(t, own time.Duration) time.Duration {
	if t == 0 {
		return own
	}
	return forever(t)
}

// info6 parses the information that even a stateless server provides.
func info6(m *dhcpv6.Message, now time.Time) (*Lease, error) {
	id := m.Options.ServerID()
	if id == nil {
		return nil, errors.New("no server identifier")
	}
	l := &Lease{From: now, serverID: bytes.Clone(id.ToBytes())}
	for _, ip := range m.Options.DNS() {
		if a, ok := netip.AddrFromSlice(ip); ok && usable(a) && !slices.Contains(l.DNS, a) && len(l.DNS) < mostDNS {
			l.DNS = append(l.DNS, a)
		}
	}
	if d := m.Options.DomainSearchList(); d != nil {
		l.Domains = sensibleDomains(d.Labels)
	}
	return l, nil
}
