// SPDX-License-Identifier: Apache-2.0

package clat

import (
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// TestPrefixOf checks which addresses of ipv4only.arpa reveal a prefix (RFC 7050, 3).
func TestPrefixOf(t *testing.T) {
	for addr, want := range map[string]string{
		"64:ff9b::c000:aa":         "64:ff9b::/96",
		"64:ff9b::c000:ab":         "64:ff9b::/96",
		"2001:db8:c000:aa::":       "2001:db8::/32",
		"2001:db8:1:0:c0:0:aa00::": "2001:db8:1::/64",
		"64:ff9b::c000:ac":         "", // another address
		"2001:db8:1:0:c0:0:aa00:1": "", // a suffix
		"fe80::c000:aa":            "",
	} {
		got, ok := prefixOf(netip.MustParseAddr(addr))
		if text := got.String(); ok != (want != "") || ok && text != want {
			t.Errorf("%s: %s, %v, expected %q", addr, text, ok, want)
		}
	}
}

// TestAnswer checks that an answer without a prefix is an error, and that a lifetime has limits.
func TestAnswer(t *testing.T) {
	answer := func(addr string, ttl uint32) *dnsmessage.Parser {
		name := dnsmessage.MustNewName("ipv4only.arpa.")
		m := dnsmessage.Message{
			Questions: []dnsmessage.Question{{Name: name}},
			Answers: []dnsmessage.Resource{
				{Header: dnsmessage.ResourceHeader{Name: name}, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 0, 170}}},
				{Header: dnsmessage.ResourceHeader{Name: name, TTL: ttl}, Body: &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(addr).As16()}},
			},
		}
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var p dnsmessage.Parser
		if _, err := p.Start(b); err != nil {
			t.Fatal(err)
		}
		return &p
	}
	if p, ttl, err := parseAnswer(answer("64:ff9b::c000:aa", 0)); err != nil || ttl != leastTTL || p.String() != "64:ff9b::/96" {
		t.Errorf("%v %v %v", p, ttl, err)
	}
	if _, ttl, err := parseAnswer(answer("64:ff9b::c000:aa", 1<<31)); err != nil || ttl != mostTTL {
		t.Errorf("%v %v", ttl, err)
	}
	if p, _, err := parseAnswer(answer("64:ff9b::1", 60)); err == nil {
		t.Errorf("%v", p)
	}
}
