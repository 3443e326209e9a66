// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verbtest"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/instance"
)

// The table fits the width of a terminal, and no word is lost.
func TestAccountTable(t *testing.T) {
	a := account.Account{
		Processes: []account.Process{
			{PID: 4242, Command: "python3", Stack: 3, Host: 1, MPTCP: 1, FallbackPeer: 1, Received: 1040, Sent: 73412608, Peers: []account.Peer{
				{Proto: "udp", Addr: "10.71.0.1:7", Bytes: 200}, {Proto: "tcp", Addr: "[2001:db8::1:80a0]:443", Bytes: 100},
			}},
			{PID: 4194303, Ended: true, Command: "curl", Stack: 1, MPTCP: 1, Received: 100, Peers: []account.Peer{{Proto: "tcp", Addr: "10.71.0.1:80", Bytes: 100}}},
		},
		Hosted: []account.Place{{Addr: "127.0.0.1:5432", Sockets: 1}},
	}
	var b strings.Builder
	if err := writeAccount(cli.Screen{Writer: &b, Width: 80}, &a); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	verbtest.Golden(t, "account.txt", b.String())
}

func TestGuardTable(t *testing.T) {
	var b strings.Builder
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	ports := guard.Ports{First: 61440, Last: 65535, Listen: []uint16{8080, 80}}
	for _, st := range []guard.Status{
		{
			Mode: "auto", Method: guard.NFTIngress, Ports: ports, Links: []guard.Link{{Device: "eno1", Addrs: addrs}},
			Rules: []string{"table netdev lklrun-web {", "}"}, Kept: guard.Count{Packets: 1234, Bytes: 1800000}, Restored: 2,
		},
		{Mode: "off", Ports: ports, Links: []guard.Link{{Device: "tun0", Addrs: addrs[:1]}}},
	} {
		if err := writeGuard(cli.Screen{Writer: &b, Width: 80}, &st); err != nil {
			t.Fatal(err)
		}
	}
	verbtest.Golden(t, "guard.txt", b.String())
}

func TestListRow(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	i := instance.Info{State: instance.State{
		Name: "web", TargetPID: 7, Stack: "mptcp", Kernel: "6.12.38", Started: now.Add(-49 * time.Hour),
		Interfaces: []instance.Interface{{Name: "eth0", Type: "user"}, {Name: "eth1", Type: "tap", Host: "t1"}},
		Command:    []string{"curl", "http://x/"},
	}, Running: true}
	if got := strings.Join(listRow(i, now), "|"); got != "web|7|mptcp|6.12.38|2d1h|eth0=user,eth1=tap:t1|curl http://x/" {
		t.Errorf("running: %s", got)
	}
	i.Running = false
	if got := strings.Join(listRow(i, now), "|"); got != "web|leftover|mptcp|6.12.38||eth0=user,eth1=tap:t1|curl http://x/" {
		t.Errorf("left over: %s", got)
	}
	i.Running, i.Pod = true, &instance.Pod{Namespace: "shop", Name: "web-7d9f8b6c4d-x2x9z"}
	if got := listRow(i, now); got[len(got)-1] != "pod shop/web-7d9f8b6c4d-x2x9z" {
		t.Errorf("of a pod: %s", got)
	}
}
