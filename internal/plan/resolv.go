// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/pkg/config"
)

// Limits of the C library: how many name servers it asks (MAXNS, resolv.h), and
// how many domains it tries (resolv.conf(5)).
const (
	maxServers = 3
	maxSearch  = 6
)

// Names are name servers and search domains that a network gave a link.
type Names struct {
	Link    *Link
	Servers []netip.Addr
	Search  []string
}

// resolver is where the target's name servers come from.
type resolver struct {
	given    []netip.Addr // --dns: these and no others
	host     []netip.Addr // when nobody else names any
	hostFrom string
	rest     []string // of the host's resolv.conf
}

// resolv decides which name servers the target has: those given, else those of
// the interfaces in their order (the key dns, leases, the gateway), else the
// host's as far as the stack can reach them.
func (p *Plan) resolv(given []netip.Addr, facts Facts) {
	host := parseResolv(facts.Resolv)
	p.names = resolver{given: given, host: reachable(host.servers), hostFrom: "the host's /etc/resolv.conf", rest: host.rest}
	if len(p.names.host) == 0 {
		// systemd-resolved listens on the host's loopback only, and keeps
		// the servers it asks itself here.
		if up := reachable(parseResolv(facts.ResolvUpstream).servers); len(up) > 0 {
			p.names.host, p.names.hostFrom = up, "the host's /run/systemd/resolve/resolv.conf"
		}
	}
	var all int
	var links []Names
	for i := range p.Links {
		links = append(links, Names{Link: &p.Links[i]})
	}
	p.Resolv, p.DNSFrom, all = p.compose(links)
	switch {
	case all > maxServers:
		p.note("only the first %d of %d name servers are asked", maxServers, all)
	case all == 0 && len(p.leasing()) == 0:
		p.note("the host's name servers (%s) are out of the stack's reach, so names will not be found: give one with --dns ADDRESS", joinAddrs(host.servers))
	}
}

// leasing lists the links whose networks may name servers.
func (p *Plan) leasing() []string {
	var all []string
	for i := range p.Links {
		if l := &p.Links[i]; l.Leases() {
			all = append(all, l.Name)
		}
	}
	return all
}

// ResolvConf is the target's resolv.conf when it has these links, in this order.
func (p *Plan) ResolvConf(links []Names) string {
	text, _, _ := p.compose(links)
	return text
}

// compose writes the resolv.conf for links; from says whose servers are in it, and all how
// many there were.
func (p *Plan) compose(links []Names) (text, from string, all int) {
	servers, from := p.names.given, "--dns"
	var search []string
	if len(servers) == 0 {
		servers, search, from = ofLinks(links)
	}
	if len(servers) == 0 {
		servers, from = p.names.host, p.names.hostFrom
	}
	var b strings.Builder
	b.WriteString(resolvHeader)
	for _, s := range servers[:min(len(servers), maxServers)] {
		b.WriteString("nameserver " + s.String() + "\n")
	}
	if len(search) > 0 {
		b.WriteString("search " + strings.Join(search[:min(len(search), maxSearch)], " ") + "\n")
	}
	for _, line := range p.names.rest {
		if key, _, _ := strings.Cut(line, " "); len(search) == 0 || key != "search" && key != "domain" {
			b.WriteString(line + "\n")
		}
	}
	return b.String(), from, len(servers)
}

// ofLinks are the servers and domains of the links in their order.
func ofLinks(links []Names) (servers []netip.Addr, search []string, from string) {
	var sources []string
	add := func(source string, all ...netip.Addr) {
		for _, a := range all {
			if !slices.Contains(servers, a) {
				servers = append(servers, a)
			}
		}
		if len(all) > 0 && !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}
	for _, n := range links {
		l := n.Link
		add("the key dns", l.DNS...)
		add("the leases", n.Servers...)
		for _, d := range n.Search {
			if !slices.Contains(search, d) {
				search = append(search, d)
			}
		}
		if l.Type == config.TypeUser && l.GW4.IsValid() {
			add("the gateway, which asks as the host does", l.GW4)
		}
	}
	return servers, search, strings.Join(sources, " and ")
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
	return joined(all, ", ")
}
