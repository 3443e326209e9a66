// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/link/user/rules"
	"github.com/lklrun/lklrun/pkg/config"
	"github.com/lklrun/lklrun/test/kit"
)

// TestOnlyHostOpensSockets checks that no other file opens a socket of the host, so that
// no code can forget the rules. listen.go opens published ports, which rules exclude.
func TestOnlyHostOpensSockets(t *testing.T) {
	opens := regexp.MustCompile(`\bnet\.(Dial|Listen)\w*\b|\bunix\.(Socket|Connect|Sendto|Sendmsg)\b`)
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") && opens.Match(text) {
			found[name] = true
		}
	}
	if len(found) != 2 || !found["host.go"] || !found["listen.go"] {
		t.Errorf("these files open sockets of the host: %v", found)
	}
}

// TestDialHostRefuses checks that the function that opens sockets applies the rules
// itself.
func TestDialHostRefuses(t *testing.T) {
	cfg := Default(0)
	allow, err := config.ParseAllow("192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Allow = []config.Allow{allow}
	g := &Gateway{cfg: cfg, rules: newRules(cfg, func(string) {}, nil, nil)}
	defer g.rules.Close()
	for _, network := range []string{"tcp", "udp"} {
		for _, to := range []string{"192.0.2.2", "192.168.127.254", "127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::1"} {
			conn, _, err := g.dialHost(t.Context(), network, stack.TransportEndpointID{LocalAddress: tcpip.AddrFromSlice(netip.MustParseAddr(to).AsSlice()), LocalPort: 80})
			var refused *rules.DeniedError
			if !errors.As(err, &refused) {
				t.Errorf("%s to %s: %v", network, to, err)
			}
			if conn != nil {
				conn.Close()
			}
		}
	}
	cfg.Publish = []config.Publish{{HostPort: 8080, Port: 80}}
	if _, _, err := Start(context.Background(), cfg, slog.New(slog.DiscardHandler), func(string) {}); err == nil {
		t.Error("a gateway with rules and published ports started")
	}
}

// TestSecondFinding06Routes checks that rules for prefixes permit no destination whose route
// is not unicast: finding 6 of the second review.
func TestSecondFinding06Routes(t *testing.T) {
	host, net := kit.NewNetns(t, "host"), kit.NewNetns(t, "net")
	kit.Veth(t, host, "v0", net, "n0")
	host.Addr(t, "v0", "10.71.8.1/24", "fd71::1/64")
	host.Run(t, "sh", "-ec", `ip link set lo up
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
ip route add default via 10.71.8.2
ip route add default via fd71::2
ip route add local 10.9.0.0/16 dev lo src 10.71.8.1
ip route add local 10.11.0.0/16 dev lo table 100
ip route add local default dev lo table 100
ip route add broadcast 10.13.0.0/16 dev v0
ip route add multicast 10.14.0.0/16 dev v0
ip route add blackhole 10.15.0.0/16
ip route add prohibit 10.16.0.0/16
ip route add throw 10.17.0.0/16
ip -6 route add local fd09::/16 dev lo
ip -6 route add anycast fd0a::1 dev v0
ip rule add uidrange 54321-54321 to 10.11.0.0/16 lookup 100
ip rule add ipproto tcp dport 10 lookup 100
ip rule add from 10.71.8.1 to 10.12.0.0/16 lookup 100
ip rule add ipproto udp sport 1024-65534 dport 11 lookup 100`)
	cfg := Default(0)
	for _, text := range []string{"0.0.0.0/0:9", "0.0.0.0/0:10", "0.0.0.0/0:11", "[::/0]:9", "10.71.8.1:12", "10.71.8.255:12", "[fd71::]:12", "[fd71::1]:12"} {
		a, err := config.ParseAllow(text)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Allow = append(cfg.Allow, a)
	}
	cfg.User = &runas.User{UID: 54321, GID: 54321}
	host.Do(t, func() error {
		g := &Gateway{cfg: cfg, rules: newRules(cfg, func(string) {}, nil, nil)}
		defer g.rules.Close()
		for to, want := range map[string]bool{
			"192.0.2.1:9": true, "10.71.8.2:9": true, "10.71.8.3:10": false, "[fd71::2]:9": true, "[2001:db8::1]:9": true,
			"10.17.0.1:9": true, // throw continues with the next table
			"10.71.8.1:9": false, "10.71.8.1:12": true, "[fd71::1]:9": false, "[fd71::1]:12": true,
			"10.71.8.255:9": false, "10.71.8.0:9": true, "10.71.8.255:12": false,
			"10.9.1.1:9": false, "10.11.1.1:9": false, "10.12.1.1:9": false, "10.13.1.1:9": false, "10.14.1.1:9": false,
			"10.15.1.1:9": false, "10.16.1.1:9": false, "[fd71::]:9": false, "[fd71::]:12": false,
			"[fd09::1]:9": false, "[fd0a::1]:9": false,
			"[64:ff9b::10.71.8.1]:9": false, "[64:ff9b::127.0.0.1]:9": false, "[64:ff9b::192.0.2.1]:9": true,
			"[2002:a47:801::1]:9": false, "[2002:c000:201::1]:9": true, "[::10.71.8.255]:9": false,
		} {
			if report := g.rules.Refuse(rules.Socket{Protocol: "tcp", To: netip.MustParseAddrPort(to)}); (report == nil) != want {
				t.Errorf("%s is permitted: %v", to, report == nil)
			}
		}
		for to, want := range map[string]bool{"10.71.8.2:9": true, "10.71.8.2:10": true, "10.71.8.2:11": false} {
			at := netip.MustParseAddrPort(to)
			conn, _, err := g.dialHost(t.Context(), "udp", stack.TransportEndpointID{LocalAddress: tcpip.AddrFromSlice(at.Addr().AsSlice()), LocalPort: at.Port()})
			if (err == nil) != want {
				t.Errorf("socket to %s: %v", to, err)
			}
			if conn != nil {
				conn.Close()
			}
		}
		return nil
	})
}
