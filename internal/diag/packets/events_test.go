// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"net/netip"
	"testing"

	"github.com/lklrun/lklrun/internal/diag/drops"
)

// TestSelection checks which events belong to a capture with an interface and a filter.
func TestSelection(t *testing.T) {
	syn := drops.Record{Interface: "eth0", Family: "inet", Protocol: "tcp", Flags: "S",
		Source: netip.MustParseAddrPort("10.0.0.1:4000"), Destination: netip.MustParseAddrPort("10.0.0.2:80")}
	dns := drops.Record{Interface: "eth1", Family: "inet6", Protocol: "udp",
		Source: netip.MustParseAddrPort("[fd00::1]:5000"), Destination: netip.MustParseAddrPort("[fd00::2]:53")}
	unknown := drops.Record{Family: "inet", Protocol: "200", Source: netip.MustParseAddrPort("10.0.0.1:0")}
	for _, tt := range []struct {
		names             []string
		filter            string
		syn, dns, unknown bool
	}{
		{nil, "", true, true, true},
		{[]string{"any"}, "", true, true, true},
		{[]string{"eth0"}, "", true, false, true}, // without an interface, it may be one of eth0
		{nil, "tcp port 80", true, false, false},
		{nil, "tcp[tcpflags] & tcp-syn != 0", true, false, false},
		{nil, "src host 10.0.0.1", true, false, true},
		{nil, "ip6 and udp dst port 53", false, true, false},
		{nil, "host fd00::2", false, true, false},
		{nil, "ip proto 200", false, false, true},
		{[]string{"eth1"}, "tcp", false, false, false},
	} {
		accepts, err := selection(tt.names, tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		if accepts(&syn) != tt.syn || accepts(&dns) != tt.dns || accepts(&unknown) != tt.unknown {
			t.Errorf("%v %q: %v %v %v", tt.names, tt.filter, accepts(&syn), accepts(&dns), accepts(&unknown))
		}
	}
	if _, err := selection(nil, "no such filter"); err == nil {
		t.Error("a wrong filter is accepted")
	}
}
