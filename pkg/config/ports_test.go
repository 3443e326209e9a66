// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestParsePublish(t *testing.T) {
	for _, spec := range []string{"8080:80", "127.0.0.1:8080:80", "[::1]:8080:80", "5353:53/udp", "0.0.0.0:1:65535/udp"} {
		p, err := ParsePublish(spec)
		if err != nil || p.String() != spec {
			t.Errorf("%s: %+v, %v", spec, p, err)
		}
	}
	if p, err := ParsePublish("8080:80/tcp"); err != nil || p.String() != "8080:80" {
		t.Errorf("8080:80/tcp: %v, %v", p, err)
	}
	for spec, want := range map[string]string{
		"":                 `""; expected [ADDRESS:]HOSTPORT:PORT[/udp]`,
		"80":               `"80"; expected [ADDRESS:]HOSTPORT:PORT[/udp]`,
		"0:80":             `"0:80": "0" is not a port; expected a number from 1 to 65535`,
		"80:65536":         `"80:65536": "65536" is not a port`,
		"80:80/sctp":       `"80:80/sctp": "sctp"; expected tcp or udp after the slash`,
		"::1:80:80":        `"::1:80:80": "::1" is not an address of the host; expected`,
		"[::1]":            `"[::1]"; expected`,
		"[10.0.0.1]:80:80": `"[10.0.0.1]:80:80": "[10.0.0.1]" is not an address of the host`,
		"host:80:80":       `"host:80:80": "host" is not an address of the host`,
	} {
		if p, err := ParsePublish(spec); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v\nwant %s...", spec, p, err, want)
		}
	}
}

func TestParseRSTGuard(t *testing.T) {
	for _, s := range []string{GuardAuto, GuardNFT, GuardIPTables, GuardOff, GuardPrint} {
		if got, err := ParseRSTGuard(s); err != nil || got != s {
			t.Errorf("%s: %s, %v", s, got, err)
		}
	}
	if _, err := ParseRSTGuard("pf"); err == nil || err.Error() != `"pf"; expected auto, nft, iptables, off or print` {
		t.Error(err)
	}
}

func TestParsePortRange(t *testing.T) {
	for _, c := range []struct {
		s    string
		want PortRange
		n    int
	}{
		{"50000-52047", PortRange{First: 50000, Last: 52047}, 2048},
		{"1024", PortRange{Size: 1024}, 1024},
		{"1-65535", PortRange{}, 0}, {"15", PortRange{}, 0}, {"0", PortRange{}, 0}, {"00", PortRange{}, 0}, {"", PortRange{}, 0}, {"0-20", PortRange{}, 0},
		{"300-200", PortRange{}, 0}, {"x-200", PortRange{}, 0}, {"60000-70000", PortRange{}, 0}, {"-5", PortRange{}, 0},
	} {
		got, err := ParsePortRange(c.s)
		if (err == nil) != (c.n > 0) || got != c.want {
			t.Errorf("%q: %+v, %v", c.s, got, err)
		}
		if c.n > 0 && (got.Len() != c.n || got.String() != c.s) {
			t.Errorf("%q: %d ports, %q", c.s, got.Len(), got)
		}
	}
	if n := (PortRange{}).Len(); n != DefaultPorts {
		t.Errorf("by default %d", n)
	}
	_, err := ParsePortRange("12")
	if want := `"12": 12 ports; expected 16 to 32768`; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
