// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"bytes"
	"testing"
	"time"
)

// Name servers and domains from a router are limited, whatever the router sends.
func FuzzUserOption(f *testing.F) {
	head := []byte{10, 0, 24, 0, 2, 0, 0, 0, 134, 0, 0, 0, 0, 0, 0, 0} // AF_INET6, 24 bytes, interface 2
	rdnss := append([]byte{optRDNSS, 3, 0, 0, 0, 0, 2, 88}, bytes.Repeat([]byte{0xfd}, 16)...)
	dnssl := append([]byte{optDNSSL, 3, 0, 0, 0, 0, 2, 88}, "\x03lab\x07example\x00\x00\x00\x00"...)
	f.Add(append(bytes.Clone(head), rdnss...))
	f.Add(append(bytes.Clone(head), dnssl...))
	n, ok := userOption(append(bytes.Clone(head), dnssl...))
	if !ok || n.IfIndex != 2 || len(n.RDNSS) != 1 || len(n.RDNSS[0].Domains) != 1 || n.RDNSS[0].Domains[0] != "lab.example" {
		f.Fatalf("%+v, %v", n, ok)
	}
	pref64 := append([]byte{optPREF64, 2, 0x07, 0x0a}, 0x20, 1, 0xd, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0)
	f.Add(append([]byte{10, 0, 16}, append(bytes.Clone(head[3:]), pref64...)...))
	n, ok = userOption(append([]byte{10, 0, 16}, append(bytes.Clone(head[3:]), pref64...)...))
	if !ok || n.PREF64 == nil || n.PREF64.Prefix.String() != "2001:db8:64::/56" || n.PREF64.Lifetime != 1800*time.Second {
		f.Fatalf("%+v, %v", n.PREF64, ok)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := userOption(b)
		if !ok {
			return
		}
		for _, s := range n.RDNSS {
			if len(s.Servers) > mostServers || len(s.Domains) > mostDomains || s.Lifetime < 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}
