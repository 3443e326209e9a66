// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/pkg/config"
)

// maxServers is how many name servers the C library asks (MAXNS, resolv.h).
const maxServers = 3

// resolv decides which name servers the target has: those given, else the
// gateway, else the host's as far as the stack can reach them.
func (p *Plan) resolv(given []netip.Addr, facts Facts) {
	host := parseResolv(facts.Resolv)
	servers := given
	switch {
	case len(given) > 0:
		p.DNSFrom = "--dns"
	case p.gatewayLink() != nil:
		l := p.gatewayLink()
		servers, p.DNSFrom = []netip.Addr{l.GW4}, "the gateway, which asks as the host does"
	default:
		p.DNSFrom = "the host's /etc/resolv.conf"
		servers = reachable(host.servers)
		if len(servers) == 0 {
			// systemd-resolved listens on the host's loopback only, and keeps
			// the servers it asks itself here.
			if servers = reachable(parseResolv(facts.ResolvUpstream).servers); len(servers) > 0 {
				p.DNSFrom = "the host's /run/systemd/resolve/resolv.conf"
			}
		}
		if len(servers) == 0 {
			p.note("the host's name servers (%s) are out of the stack's reach, so names will not be found: give one with --dns ADDRESS", joinAddrs(host.servers))
		}
	}
	var b strings.Builder
	b.WriteString(resolvHeader)
	for _, s := range servers[:min(len(servers), maxServers)] {
		b.WriteString("nameserver " + s.String() + "\n")
	}
	for _, line := range host.rest {
		b.WriteString(line + "\n")
	}
	p.Resolv = b.String()
	if len(servers) > maxServers {
		p.note("only the first %d of %d name servers are asked", maxServers, len(servers))
	}
}

func (p *Plan) gatewayLink() *Link {
	i := slices.IndexFunc(p.Links, func(l Link) bool { return l.Type == config.TypeUser })
	if i < 0 {
		return nil
	}
	return &p.Links[i]
}

// resolvConf is what matters of a resolv.conf(5).
type resolvConf struct {
	servers []netip.Addr
	rest    []string // search, domain, options, sortlist: as they were
}

func parseResolv(text string) resolvConf {
	var r resolvConf
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(f[1]); err == nil {
				r.servers = append(r.servers, a)
			}
		case "search", "domain", "options", "sortlist":
			r.rest = append(r.rest, strings.Join(f, " "))
		}
	}
	return r
}

// reachable leaves out what only the host itself reaches: its loopback, and
// link-local addresses, whose zone names one of its interfaces.
func reachable(all []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool {
		return a.IsLoopback() || a.Zone() != "" || a.IsUnspecified()
	})
}

func joinAddrs(all []netip.Addr) string {
	if len(all) == 0 {
		return "none"
	}
	s := make([]string, len(all))
	for i, a := range all {
		s[i] = a.String()
	}
	return strings.Join(s, ", ")
}
