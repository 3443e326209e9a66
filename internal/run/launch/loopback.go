// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/lklrun/lklrun/internal/host/guard"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/pkg/config"
)

// listenersLimit bounds the search for a server on the host.
const listenersLimit = time.Second

// refused handles a connect to the stack's loopback interface that no server accepted. If
// the host has a server there, the program probably wants that one, so refused tells the
// user how to reach it. It does so once per run.
func (r *run) refused(ctx context.Context, to string) {
	at, err := netip.ParseAddrPort(to)
	if err != nil || r.opts.Quiet || r.hinted || published(r.plan, at.Port()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listenersLimit)
	defer cancel()
	sockets, err := guard.Sockets(ctx, []uint16{at.Port()})
	if err != nil {
		r.log.Debug("looking for a server on the host's loopback interface", "error", err)
		return
	}
	var links []link.Link
	for _, l := range r.links.all() {
		links = append(links, *l.Link)
	}
	if hint := loopbackHint(at, sockets, links, r.plan.Engine); hint != "" {
		r.opts.Tell(hint)
		r.hinted = true
	}
}

// published reports whether the run itself listens on a port of the host.
func published(p *plan.Plan, port uint16) bool {
	return slices.ContainsFunc(p.Publish, func(f config.Publish) bool { return f.HostPort == port && !f.UDP })
}

// loopbackHint returns the line that tells how to reach the host's server at a loopback
// address. sockets are the host's sockets at this port. loopbackHint returns "" if the
// host has no server there, or if the run cannot reach it.
func loopbackHint(at netip.AddrPort, sockets []sockdiag.Socket, links []link.Link, engine string) string {
	accepts := func(addr netip.Addr) bool {
		return slices.ContainsFunc(sockets, func(s sockdiag.Socket) bool {
			local := s.Local.Addr().Unmap()
			return s.Proto == sockdiag.TCP && s.State == sockdiag.Listen && s.Local.Port() == at.Port() &&
				(local == addr || local.IsUnspecified() && (local.Is4() == addr.Is4() || addr.Is4() && !s.V6Only))
		})
	}
	if !accepts(at.Addr()) {
		return ""
	}
	var ways []string
	gateway := slices.IndexFunc(links, func(l link.Link) bool { return l.HostLoopback.IsValid() })
	if gateway >= 0 && accepts(netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
		ways = append(ways, fmt.Sprintf("connect to %v", netip.AddrPortFrom(links[gateway].HostLoopback, at.Port())))
	}
	if engine != config.EnginePreload { // preload has no access to the host's stack
		ways = append(ways, fmt.Sprintf("use --host-net %v", at))
	}
	if len(ways) == 0 {
		return ""
	}
	hint := fmt.Sprintf("nothing listens on the stack's own %v; to reach the host's server there, %s", at, ways[0])
	if len(ways) > 1 {
		hint += " or " + ways[1]
	}
	return hint
}
