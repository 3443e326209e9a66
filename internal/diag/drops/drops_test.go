// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	got, err := parse("7 1764180000.000000042 drop TCP_CSUM tcp_v4_rcv eth0 60 0800 6 10.0.0.1 4000 10.0.0.2 80 12 99 0000abcd\n")
	want := Record{
		Number: 7, Time: time.Unix(1764180000, 42), Kind: Drop, Reason: "TCP_CSUM", Meaning: "the TCP checksum is wrong",
		Function: "tcp_v4_rcv", Interface: "eth0", Bytes: 60, Family: "inet", Protocol: "tcp", Flags: "S.", Token: "0000abcd", Inode: 99,
		Source: netip.MustParseAddrPort("10.0.0.1:4000"), Destination: netip.MustParseAddrPort("10.0.0.2:80"),
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	got, err = parse("8 1764180000.000000000 reset-sent NO_SOCKET - - 0 86dd 6 fe80::1 1 - 0 04 0 00000000\n")
	if err != nil || got.Function != "" || got.Destination.IsValid() || got.Family != "inet6" || got.Flags != "R" || got.Token != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = parse("9 1764180000.000000000 drop NO_SOCKET tcp_v4_rcv eth1 56 0800 6 10.0.0.1 80 10.0.1.2 40000 12 0 00000000\n")
	if err != nil || !strings.Contains(got.Meaning, "attempt that has ended") {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, line := range []string{"", "7 8 drop", strings.Repeat("x ", 16)} {
		if r, err := parse(line); err == nil {
			t.Errorf("%q became %+v", line, r)
		}
	}
}

func TestParseCounts(t *testing.T) {
	got, err := ParseCounts("drop NO_SOCKET 3\nreset-received PEER 1\n")
	if err != nil || len(got) != 2 || got[0] != (Count{Drop, "NO_SOCKET", "no socket has this port", 3}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := ParseCounts("drop NO_SOCKET\n"); err == nil {
		t.Errorf("got %+v", got)
	}
}

func TestMeaning(t *testing.T) {
	for _, tt := range []struct{ reason, function, want, not string }{
		{"IP_INHDR", "ip_forward", "TTL", "invalid"},
		{"IP_INHDR", "ip_rcv_core", "invalid", "TTL"},
		{"NOT_SPECIFIED", "tcp_v4_rcv", "connection is in TIME-WAIT", "see the function"},
	} {
		if got := meaningIn(tt.reason, tt.function); !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s in %s: %q", tt.reason, tt.function, got)
		}
	}
	if got := Meaning("VXLAN_INVALID_HDR"); got != "vxlan invalid hdr" {
		t.Errorf("a reason without an explanation: %q", got)
	}
}

func TestFlags(t *testing.T) {
	for bits := range 256 {
		if got := Flags(tcpFlags(uint64(bits))); int(got) != bits {
			t.Errorf("%#x became %#x", bits, got)
		}
	}
}

func TestProtocol(t *testing.T) {
	for _, n := range []uint64{1, 6, 17, 58, 200} {
		if got := Protocol(protocol(n)); uint64(got) != n {
			t.Errorf("%d became %d", n, got)
		}
	}
}

func TestParseTracking(t *testing.T) {
	const text = "entries  clashres found drop early_drop\n00000012  00000000 00000001 0000000a 00000003\n00000012  00000000 00000001 00000001 00000000\n"
	if got, want := parseTracking(text), (Tracking{Entries: 18, Dropped: 11}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := parseTracking(""); got != (Tracking{}) {
		t.Errorf("without a table: %+v", got)
	}
}
