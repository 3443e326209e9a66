// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

func FuzzLease6(f *testing.F) {
	iaid := [4]byte{1, 2, 3, 4}
	for _, ip := range []string{"fd00::5", "::", "::1", "ff02::1", "fe80::1", "::ffff:10.0.0.1"} {
		for _, valid := range []time.Duration{0, time.Hour, infinite * time.Second} {
			m, err := dhcpv6.NewMessage()
			if err != nil {
				f.Fatal(err)
			}
			m.MessageType = dhcpv6.MessageTypeReply
			m.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: fuzzLink.MAC}))
			ia := &dhcpv6.OptIANA{IaId: iaid, T1: valid / 3, T2: valid / 2}
			ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(ip), PreferredLifetime: valid, ValidLifetime: valid})
			m.AddOption(ia)
			m.AddOption(dhcpv6.OptDNS(net.ParseIP("fd00::53"), net.ParseIP("::1"), net.ParseIP("ff02::1")))
			f.Add(m.ToBytes())
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := dhcpv6.MessageFromBytes(b)
		if err != nil {
			return
		}
		l, err := lease6(m, iaid, time.Now())
		if err != nil {
			return
		}
		if what := sane(l, fuzzLink); what != "" {
			t.Errorf("%s: %+v", what, l)
		}
		if l.Addr.Addr().IsLinkLocalUnicast() || l.preferred > l.valid {
			t.Errorf("%+v", l)
		}
	})
}
