// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

func TestAddresses(t *testing.T) {
	var sockets []sockdiag.Socket
	for _, at := range []string{"0.0.0.0:80", "127.0.0.1:81", "[::]:82", "[fe80::1]:83", "[::ffff:10.0.0.1]:84", "[::1]:85"} {
		sockets = append(sockets, sockdiag.Socket{Local: netip.MustParseAddrPort(at)})
	}
	sockets = append(sockets, sockdiag.Socket{Local: netip.MustParseAddrPort("[::]:86"), V6Only: true})
	want := map[string]bool{
		"0.0.0.0:80": true, "127.0.0.1:81": true, "[::]:82": true, "0.0.0.0:82": true,
		"10.0.0.1:84": true, "[::1]:85": true, "[::]:86": true,
	}
	got := map[string]bool{}
	for at := range addresses(sockets) {
		got[at.String()] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// The addresses are encoded as struct sockaddr_in and struct sockaddr_in6.
func TestSockaddr(t *testing.T) {
	for at, want := range map[string]string{
		"127.0.0.1:80": "\x02\x00\x00\x50\x7f\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00",
		"[fd00::2]:80": "\x0a\x00\x00\x50\x00\x00\x00\x00\xfd" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x00\x00\x00\x00",
	} {
		if _, b := sockaddr(netip.MustParseAddrPort(at)); string(b) != want {
			t.Errorf("%s: %q, expected %q", at, b, want)
		}
	}
}
