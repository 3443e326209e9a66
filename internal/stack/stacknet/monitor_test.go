// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"bytes"
	"testing"
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
