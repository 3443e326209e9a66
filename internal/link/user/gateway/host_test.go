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

	"github.com/lklrun/lklrun/internal/link/user/rules"
	"github.com/lklrun/lklrun/pkg/config"
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
	g := &Gateway{cfg: cfg, rules: newRules(cfg, func(string) {})}
	defer g.rules.Close()
	for _, network := range []string{"tcp", "udp"} {
		for _, to := range []string{"192.0.2.2", "192.168.127.254", "127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::1"} {
			conn, err := g.dialHost(t.Context(), network, tcpip.AddrFromSlice(netip.MustParseAddr(to).AsSlice()), 80)
			var refused *rules.RefusedError
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

// TestLocal checks that the machine's own addresses are recognized.
func TestLocal(t *testing.T) {
	for to, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "192.0.2.1": false} {
		if got, err := local(netip.MustParseAddr(to)); err != nil || got != want {
			t.Errorf("%s: %v, %v", to, got, err)
		}
	}
}
