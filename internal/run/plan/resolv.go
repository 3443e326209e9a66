// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/run/preflight"
	"github.com/lklrun/lklrun/pkg/config"
)

// Limits of the C library: the number of name servers that it queries (MAXNS,
// resolv.h), and the number of search domains that it tries (resolv.conf(5)).
const (
	maxServers = 3
	maxSearch  = 6
)

// LinkNames are the name servers and search domains that a link obtained from
// its network.
type LinkNames struct {
	Link    *Link
	Servers []netip.Addr
	Search  []string
}

// Resolver holds the sources of the target's name servers.
type Resolver struct {
	Given    []netip.Addr `json:"given,omitempty"` // from --dns; if set, all other sources are ignored
	Host     []netip.Addr `json:"host,omitempty"`  // used if no other source provides a name server
	HostFrom string       `json:"host_from,omitempty"`
	Rest     []string     `json:"rest,omitempty"` // other lines of the host's resolv.conf

	// Serve are addresses of the stack's loopback at which lklrun answers name
	// queries, because the target has no resolv.conf. The target queries these addresses
	// by default.
	Serve []netip.Addr `json:"serve,omitempty"`
	// ServeInstead is used if the target sees the host's resolv.conf: the loopback
	// addresses in it.
	ServeInstead []netip.Addr `json:"serve_instead,omitempty"`
}

// loopback are the addresses that programs query if there is no resolv.conf.
var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// resolv chooses the target's name servers. It uses the first of these sources
// that provides any:
//
//   - the servers given with --dns;
//   - those of the interfaces in order (the key dns, leases, the gateway);
//   - those of the host that the stack can reach.
func (p *Plan) resolv(given []netip.Addr, found preflight.Facts) {
	host := parseResolv(found.Resolv)
	p.Names = Resolver{Given: given, Host: reachable(host.servers), HostFrom: "the host's /etc/resolv.conf", Rest: host.rest}
	if len(p.Names.Host) == 0 {
		// systemd-resolved listens only on the host's loopback address.
		// This file lists the servers that systemd-resolved itself
		// queries.
		if up := reachable(parseResolv(found.ResolvUpstream).servers); len(up) > 0 {
			p.Names.Host, p.Names.HostFrom = up, "the host's /run/systemd/resolve/resolv.conf"
		}
	}
	switch {
	case found.NoResolv:
		p.Names.Serve, p.Names.ServeInstead = loopback, loopback
	case len(host.servers) == 0:
		p.Names.ServeInstead = loopback
	default:
		for _, a := range host.servers {
			if a.IsLoopback() {
				p.Names.ServeInstead = append(p.Names.ServeInstead, a)
			}
		}
	}
	var all int
	var links []LinkNames
	for i := range p.Links {
		links = append(links, LinkNames{Link: &p.Links[i]})
	}
	p.Resolv, p.DNSFrom, all = p.compose(links)
	switch {
	case all > maxServers:
		p.note("only the first %d of %d name servers are used", maxServers, all)
	case all == 0 && len(p.leasing()) == 0:
		p.note("the stack cannot reach the host's name servers (%s), so name resolution fails; pass a name server with --dns ADDRESS", joinAddrs(host.servers))
	}
}

// leasing lists the links whose networks can provide name servers.
func (p *Plan) leasing() []string {
	var all []string
	for i := range p.Links {
		if l := &p.Links[i]; l.Leases() {
			all = append(all, l.Name)
		}
	}
	return all
}

// ResolvConf returns the target's resolv.conf for these links, in this order.
func (p *Plan) ResolvConf(links []LinkNames) string {
	text, _, _ := p.compose(links)
	return text
}

// NameServers returns the name servers in the text of a resolv.conf.
func NameServers(text string) []netip.Addr { return parseResolv(text).servers }

// compose builds the resolv.conf for links. from describes the source of its
// servers. all is the number of servers before the limit is applied.
func (p *Plan) compose(links []LinkNames) (text, from string, all int) {
	servers, from := p.Names.Given, "--dns"
	var search []string
	if len(servers) == 0 {
		servers, search, from = ofLinks(links)
	}
	if len(servers) == 0 {
		servers, from = p.Names.Host, p.Names.HostFrom
	}
	var b strings.Builder
	b.WriteString(resolvHeader)
	for _, s := range servers[:min(len(servers), maxServers)] {
		b.WriteString("nameserver " + s.String() + "\n")
	}
	if len(search) > 0 {
		b.WriteString("search " + strings.Join(search[:min(len(search), maxSearch)], " ") + "\n")
	}
	for _, line := range p.Names.Rest {
		if key, _, _ := strings.Cut(line, " "); len(search) == 0 || key != "search" && key != "domain" {
			b.WriteString(line + "\n")
		}
	}
	return b.String(), from, len(servers)
}

// ofLinks returns the servers and domains of the links in order.
func ofLinks(links []LinkNames) (servers []netip.Addr, search []string, from string) {
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
	if n := slices.IndexFunc(links, func(n LinkNames) bool { return n.Link.OnlyDNS }); n >= 0 {
		links = links[n : n+1]
	}
	for _, n := range links {
		l := n.Link
		source := "the key dns"
		if l.OnlyDNS {
			source = "the interface " + l.Name
		}
		add(source, l.DNS...)
		add("the leases", n.Servers...)
		for _, d := range slices.Concat(l.Search, n.Search) {
			if !slices.Contains(search, d) {
				search = append(search, d)
			}
		}
		if l.NameServer.IsValid() {
			add("the gateway, which resolves names on the host", l.NameServer)
		}
	}
	return servers, search, strings.Join(sources, " and ")
}

// hosts returns the target's hosts file: the given names, and then the lines of
// the host's file, which apply to other names. The result is empty if no name is
// given.
func hosts(given []config.HostName, host string) string {
	if len(given) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(resolvHeader)
	for _, h := range given {
		b.WriteString(h.Addr.String() + "\t" + h.Name + "\n")
	}
	return b.String() + host
}

// allowHosts returns the names of the program's hosts(5) that a rule of --allow names, with
// their addresses.
func allowHosts(run config.Run, host string) (all []config.HostName) {
	add := func(h config.HostName) {
		h.Name = strings.ToLower(strings.TrimSuffix(h.Name, "."))
		if (run.Audit() != "" || slices.ContainsFunc(run.Allows, func(a config.Allow) bool { return a.Matches(h.Name) })) && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	for _, h := range run.AddHosts {
		add(h)
	}
	for line := range strings.Lines(host) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if a, err := netip.ParseAddr(f[0]); err == nil && a.Zone() == "" {
			for _, name := range f[1:] {
				add(config.HostName{Name: name, Addr: a})
			}
		}
	}
	return all
}

// resolvConf holds the relevant parts of a resolv.conf(5).
type resolvConf struct {
	servers []netip.Addr
	rest    []string // unchanged lines with search, domain, options and sortlist
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

// reachable removes addresses that only the host itself can reach. These are
// loopback addresses, and link-local addresses, whose zone is one of the host's
// interfaces.
func reachable(all []netip.Addr) []netip.Addr {
	var kept []netip.Addr
	for _, a := range all {
		if !a.IsLoopback() && a.Zone() == "" && !a.IsUnspecified() {
			kept = append(kept, a)
		}
	}
	return kept
}

func joinAddrs(all []netip.Addr) string {
	if len(all) == 0 {
		return "none"
	}
	return joined(all, ", ")
}
