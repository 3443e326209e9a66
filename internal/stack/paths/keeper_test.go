// SPDX-License-Identifier: Apache-2.0

package paths_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/paths"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

const limit = 20 * time.Second

// kept is a stack of the host's kernel with eth0 and eth1, whose paths a Keeper
// maintains.
type kept struct {
	*testing.T
	stack  *lklhost.Host
	keeper *paths.Keeper
}

func keep(t *testing.T) *kept {
	s := lklhost.OnHost(t)
	for _, n := range []string{"0", "1"} {
		s.Run(t, "ip", "link", "add", "eth"+n, "type", "veth", "peer", "name", "far"+n)
		s.Run(t, "ip", "link", "set", "far"+n, "up")
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	c := s.Dial(t)
	wants := []paths.Want{
		{Name: "eth0", Table: 101, Endpoint: stacknet.EndpointSubflow},
		{Name: "eth1", Table: 102, Endpoint: stacknet.EndpointSubflow | stacknet.EndpointBackup},
	}
	k := paths.New(ctx, c, func() []paths.Want { return wants }, slog.New(slog.DiscardHandler))
	n, err := k.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	if err := n.Configure(ctx, stacknet.Config{
		Links: []stacknet.Link{
			{Name: "eth0", Addrs: []netip.Prefix{prefix("10.1.0.2/24"), prefix("fd01::2/64")}, GW4: addr("10.1.0.1"), GW6: addr("fd01::1"), Metric: 100},
			{Name: "eth1", Addrs: []netip.Prefix{prefix("10.2.0.2/32")}, GW4: addr("10.9.0.1"), Metric: 101}, // in none of our networks
		},
		MPTCP: &stacknet.MPTCPLimits{Subflows: 5, AddAddrAccepted: 4},
	}); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return &kept{t, s, k}
}

// run runs a command in the stack's namespaces.
func (k *kept) run(command string) string {
	k.Helper()
	return k.stack.Run(k, strings.Fields(command)...)
}

// has checks that each of wants appears once in a command's output.
func (k *kept) has(command string, wants ...string) {
	k.Helper()
	text := k.run(command)
	for _, want := range wants {
		if n := strings.Count(text, want); n != 1 {
			k.Errorf("%s: %d times, want once: %q in\n%s", command, n, want, text)
		}
	}
}

// comes waits until a command's output contains what, or no longer contains it.
func (k *kept) comes(yes bool, command, what string) {
	k.Helper()
	var text string
	if !kit.Within(limit, func() bool {
		text = k.run(command)
		return strings.Contains(text, what) == yes
	}) {
		k.Fatalf("%s: %q there: want %v in\n%s", command, what, yes, text)
	}
}

func TestKeeper(t *testing.T) {
	t.Parallel()
	k := keep(t)
	k.has("ip route show table 101", "default via 10.1.0.1 dev eth0", "10.1.0.0/24 dev eth0 proto 76 scope link src 10.1.0.2")
	k.has("ip -6 route show table 101", "default via fd01::1 dev eth0", "fd01::/64 dev eth0")
	k.has("ip route show table 102", "default via 10.9.0.1 dev eth1 proto 76 metric 101 onlink")
	k.has("ip rule", "from 10.1.0.2 lookup 101", "from 10.2.0.2 lookup 102")
	k.has("ip -6 rule", "from fd01::2 lookup 101")
	k.has("ip mptcp endpoint", "10.1.0.2 id 1 subflow dev eth0", "fd01::2 id 2 subflow dev eth0", "10.2.0.2 id 3 subflow backup dev eth1")
	k.has("ip mptcp limits", "add_addr_accepted 4 subflows 5")
	k.has("ip route get 10.77.0.1 from 10.2.0.2", "via 10.9.0.1 dev eth1 table 102")
	k.has("ip route get 10.77.0.1", "via 10.1.0.1 dev eth0")

	// Make changes by hand, as programs in the stack can.
	k.run("ip addr add 10.7.0.2/24 dev eth1")
	k.comes(true, "ip mptcp endpoint", "10.7.0.2 id 4 subflow backup dev eth1")
	k.has("ip rule", "from 10.7.0.2 lookup 102")
	k.has("ip route show table 102", "10.7.0.0/24 dev eth1")
	k.run("ip route add 10.8.0.0/16 via 10.7.0.1 mtu 1300")
	k.comes(true, "ip route show table 102", "10.8.0.0/16 via 10.7.0.1 dev eth1 proto 76 mtu 1300")
	k.run("ip addr del 10.7.0.2/24 dev eth1")
	k.comes(false, "ip mptcp endpoint", "10.7.0.2")
	k.comes(false, "ip rule", "10.7.0.2")
	k.comes(false, "ip route show table 102", "10.7.0.0/24")
}

func TestKeeperCarrier(t *testing.T) {
	t.Parallel()
	k := keep(t)
	k.run("ip mptcp endpoint add 10.3.0.2 signal")
	for range 2 {
		// Wait until the other endpoint has settled.
		k.run("ip link set far0 down")
		k.comes(false, "ip mptcp endpoint", "dev eth0")
		k.run("ip link set far0 up")
		k.comes(true, "ip mptcp endpoint", "fd01::2 id 2 subflow dev eth0")
		k.has("ip mptcp endpoint", "10.1.0.2 id 1 subflow dev eth0", "10.2.0.2 id 3 subflow backup dev eth1", "10.3.0.2 id 4 signal")
	}
	// The last path stays: nothing happens until the other link returns.
	k.run("ip link set far1 down")
	k.comes(false, "ip mptcp endpoint", "dev eth1")
	k.run("ip link set far0 down")
	k.comes(true, "ip -o link show eth0", "NO-CARRIER")
	if err := k.keeper.Sync(context.Background()); err != nil {
		t.Error(err)
	}
	k.has("ip mptcp endpoint", "10.1.0.2 id 1 subflow dev eth0")
	k.run("ip link set far1 up")
	k.comes(true, "ip mptcp endpoint", "dev eth1")
	k.comes(false, "ip mptcp endpoint", "dev eth0")
}

// A stack that is paused blocks no caller.
func TestKeeperStopped(t *testing.T) {
	t.Parallel()
	k := keep(t)
	kit.Pause(t, k.stack.PID, limit)
	for range 2 { // the second call waits for the first, which continues alone
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		if err := k.keeper.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stack that is stopped: %v", err)
		}
		cancel()
	}
	if err := syscall.Kill(k.stack.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := k.keeper.Sync(context.Background()); err != nil {
		t.Errorf("one that goes on: %v", err)
	}
}

// A link disappears for good, and a new one appears.
func TestKeeperLinks(t *testing.T) {
	t.Parallel()
	k := keep(t)
	k.run("ip link del eth1")
	k.comes(false, "ip mptcp endpoint", "10.2.0.2")
	k.comes(false, "ip rule", "10.2.0.2")
	k.run("ip link add eth1 type veth peer name far1")
	k.run("ip link set far1 up")
	k.run("ip link set eth1 up")
	k.run("ip addr add 10.6.0.2/24 dev eth1")
	k.comes(true, "ip mptcp endpoint", "10.6.0.2 id 3 subflow backup dev eth1")
	k.has("ip route show table 102", "10.6.0.0/24 dev eth1")
	// Our rules are restored with the next change. Rules of others stay
	// unchanged.
	k.run("ip rule add from 10.9.9.9 lookup 77 priority 500")
	k.run("ip rule del from 10.6.0.2")
	k.run("ip addr add 10.5.0.2/24 dev eth1")
	k.comes(true, "ip rule", "from 10.6.0.2 lookup 102")
	k.has("ip rule", "from 10.9.9.9 lookup 77")
}
