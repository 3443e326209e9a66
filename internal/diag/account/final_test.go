// SPDX-License-Identifier: Apache-2.0

package account

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/pkg/config"
)

func TestAccount(t *testing.T) {
	const text = "MPTcpExtMPCapableSYNACKRX 1\nMPTcpExtMPCapableACKRX 1\nloop.turns 9\n" +
		"sockets.stack 3\nsockets.refused 1\nbytes.received 100\nbytes.sent 20\ndatagrams.sent 1\n" +
		"ended.12.curl.stack 1\nended.12.curl.received 100\nended.12.curl.sent 20\nended.12.curl.fallback-peer 1\nended.12.curl.peer tcp 10.0.0.1:80 120\nproc.13.python3.11.stack 2\nproc.13.python3.11.refused 1\n"
	a, err := ParseFinal(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"curl(12) made 1 socket on the stack: 100 bytes received, 20 sent; with 10.0.0.1:80; connections: 1 TCP (peer without MPTCP)",
		"python3.11(13) made 2 sockets on the stack",
		"python3.11(13) was refused 1 socket of a type that the stack does not support",
		"total: 3 sockets, 100 bytes received, 20 sent; 0 datagrams received, 1 sent",
		"2 connections over MPTCP",
	}
	if diff := cmp.Diff(want, a.Lines()); diff != "" {
		t.Error(diff)
	}
	if a, err = ParseFinal("sockets.stack 0\n"); err != nil || len(a.Lines()) != 1 || a.Lines()[0] != "nothing used the stack" {
		t.Error(a, err)
	}
	if a, err = ParseFinal(""); a != nil || err != nil {
		t.Errorf("none: %v, %v", a, err)
	}
	if a, err = ParseFinal("sockets.stack many\n"); a != nil || err == nil {
		t.Errorf("no number: %v, %v", a, err)
	}
}

func TestUnmet(t *testing.T) {
	const one = "sockets.stack 1\nsockets.connected 1\n"
	for _, tt := range []struct{ text, stack, mptcp string }{
		{"", "lklhost reported no statistics", "lklhost reported no statistics"},
		{"sockets.stack 0\n", "the program used no socket of the stack", "the program used no socket of the stack"},
		{"sockets.stack 1\nsockets.refused 2\n", "2 sockets of a type that the stack does not support", "2 sockets of a type that the stack does not support"},
		{"sockets.stack 1\n", "", "there was no MPTCP connection"},
		{one, "", "1 connection by TCP"},
		{one + "MPTcpExtMPCapableSYNTX 1\nMPTcpExtMPCapableFallbackSYNACK 1\n", "", "MPTCP fell back to TCP (MPCapableFallbackSYNACK 1)"},
		{one + "MPTcpExtMPCapableSYNACKRX 1\n", "", ""},
		{one + "MPTcpExtMPCapableSYNACKRX 1\nMPTcpExtInfiniteMapRx 1\n", "", "MPTCP fell back to TCP (InfiniteMapRx 1)"},
		{"sockets.stack 3\nsockets.accepted 2\nMPTcpExtMPCapableACKRX 2\n", "", ""},
		{"sockets.stack 3\nsockets.accepted 2\nMPTcpExtMPCapableACKRX 1\n", "", "1 connection by TCP"},
		// A process can choose any name.
		{one + "MPTcpExtMPCapableSYNACKRX 0\nproc.1.\nsockets.connected 0\n", "no account", "no account"},
		{one + "proc.1.x 1\nsockets.connected 0\n", "", "1 connection by TCP"},
	} {
		a, err := ParseFinal(tt.text)
		if err != nil {
			if tt.stack != "no account" || a.Unmet(config.RequireStack) == "" {
				t.Errorf("%q: %v", tt.text, err)
			}
			continue
		}
		if got := a.Unmet(""); got != "" {
			t.Errorf("%q, nothing required: %s", tt.text, got)
		}
		if got := a.Unmet(config.RequireStack); got != tt.stack {
			t.Errorf("%q, stack: %q, want %q", tt.text, got, tt.stack)
		}
		if got := a.Unmet(config.RequireMPTCP); got != tt.mptcp {
			t.Errorf("%q, mptcp: %q, want %q", tt.text, got, tt.mptcp)
		}
	}
}
