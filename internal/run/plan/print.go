// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/pkg/config"
)

// Write prints the plan in readable form: first the properties of the run, then
// the steps.
func (p *Plan) Write(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("command", "%s", text.Quote(p.Command))
	line("instance", "%s", p.dir())
	line("stack", "%s", p.Stack.describe())
	switch {
	case len(p.MissingFeatures) > 0:
		line("engine", "%s, without %s", p.Engine, strings.Join(p.MissingFeatures, " and "))
	case p.Engine == config.EnginePreload, p.Engine == config.EngineTrace:
		line("engine", "%s", p.Engine)
	}
	if p.User != nil {
		line("user", "%s", p.User)
	}
	if p.Require != "" {
		line("require", "%s", p.Require)
	}
	for i := range p.Links {
		l := &p.Links[i]
		line(l.Name, "%s", describe(l))
	}
	if p.Stack.Cmdline != "" {
		line("cmdline", "%s", p.Stack.Cmdline)
	}
	if len(p.Mount) > 0 {
		line("mount", "%s", strings.Join(p.Mount, ", "))
	}
	if len(p.Dump) > 0 {
		line("dump", "%s", strings.Join(p.Dump, ", "))
	}
	if p.Delay != 0 {
		line("delay", "%v", time.Duration(p.Delay)*time.Microsecond)
	}
	for _, s := range p.Sysctls {
		line("sysctl", "%s = %s", s.Name, s.Value)
	}
	if len(p.Publish) > 0 {
		line("publish", "%s", joined(p.Publish, " "))
	}
	for _, c := range p.Captures {
		line("capture", "%s", c)
	}
	if p.TLSKeys {
		line("tls-keys", "the programs' TLS secrets, for captures")
	}
	if p.Detach {
		line("detach", "in the background")
	}
	for _, h := range p.AddHosts {
		line("add-host", "%s is %s", h.Name, h.Addr)
	}
	for _, h := range p.HostNets {
		line("host-net", "%s, by the host's stack", h)
	}
	if p.Egress != "" {
		line("egress", "%s", p.Egress)
	}
	for _, a := range p.Allow {
		line("allow", "%s", a)
	}
	if p.DNSFrom != "" {
		dns := "none"
		if servers := parseResolv(p.Resolv).servers; len(servers) > 0 {
			dns = joinAddrs(servers) + ", from " + p.DNSFrom
		}
		if leased := p.leasing(); len(leased) > 0 && len(p.Names.Given) == 0 {
			dns = "from the leases of " + strings.Join(leased, " and ") + "; until then " + dns
		}
		if len(p.Names.Serve) > 0 {
			dns += "; served at " + joinAddrs(p.Names.Serve) + " in the stack, because there is no /etc/resolv.conf"
		}
		line("dns", "%s", dns)
	}
	for _, n := range slices.Concat(p.Notes, p.Hints) {
		line("note", "%s", n)
	}
	for _, l := range p.MissingRights {
		line("lacks", "%s", l)
	}
	b.WriteString("\n")
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "%2d. %s", i+1, s.Do)
		if s.Undo != "" {
			fmt.Fprintf(&b, " [at the end: %s]", s.Undo)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *Stack) describe() string {
	text := s.Name
	if s.Kernel != "" {
		text += ", Linux " + s.Kernel
	}
	if s.Library == "" {
		return text + ", the host's own kernel"
	}
	if s.MPTCP {
		text += ", TCP sockets become MPTCP"
	}
	return text
}

func describe(l *Link) string {
	w := link.Describe(l)
	parts := w.Summary
	for _, a := range l.Addrs {
		parts = append(parts, a.String())
	}
	if l.Leases() {
		parts = append(parts, "addresses from "+protocols(l))
	}
	if l.GW4.IsValid() {
		parts = append(parts, "via "+l.GW4.String())
	}
	if l.GW6.IsValid() {
		parts = append(parts, "via "+l.GW6.String())
	}
	for _, r := range l.Routes {
		parts = append(parts, r.To.String()+" via "+r.Via.String())
	}
	if !l.MAC.IsZero() {
		parts = append(parts, "mac "+l.MAC.String())
	}
	parts = append(parts, fmt.Sprintf("mtu %d", l.MTU), fmt.Sprintf("table %d", l.Table))
	parts = append(parts, w.Notes...)
	if l.Endpoint {
		parts = append(parts, "MPTCP endpoint")
	}
	return strings.Join(parts, ", ")
}

// joined formats the values and joins them with between.
func joined[T fmt.Stringer](all []T, between string) string {
	texts := make([]string, len(all))
	for n, one := range all {
		texts[n] = one.String()
	}
	return strings.Join(texts, between)
}
