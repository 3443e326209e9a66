// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"strings"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/pkg/config"
)

// Write prints the plan for people: what the run will have, then the steps.
func (p *Plan) Write(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("command", "%s", cli.Quote(p.Command))
	line("instance", "%s", p.dir())
	line("stack", "%s", p.Stack.describe())
	if p.Require != "" {
		line("require", "%s", p.Require)
	}
	for i := range p.Links {
		l := &p.Links[i]
		line(l.Name, "%s", l.describe())
	}
	for _, s := range p.Sysctls {
		line("sysctl", "%s = %s", s.Name, s.Value)
	}
	if p.DNSFrom != "" {
		if servers := parseResolv(p.Resolv).servers; len(servers) > 0 {
			line("dns", "%s, from %s", joinAddrs(servers), p.DNSFrom)
		} else {
			line("dns", "none")
		}
	}
	for _, n := range p.Notes {
		line("note", "%s", n)
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

func (l *Link) describe() string {
	var parts []string
	switch l.Type {
	case config.TypeUser:
		parts = append(parts, "user-mode gateway")
	case config.TypeTap:
		if l.Create {
			parts = append(parts, "tap "+l.Device+" (to be created)")
		} else {
			parts = append(parts, "tap "+l.Device)
		}
	case config.TypeFD:
		parts = append(parts, fmt.Sprintf("descriptor %d", l.FD))
	}
	for _, a := range l.Addrs {
		parts = append(parts, a.String())
	}
	if l.GW4.IsValid() {
		parts = append(parts, "via "+l.GW4.String())
	}
	if l.GW6.IsValid() {
		parts = append(parts, "via "+l.GW6.String())
	}
	if !l.MAC.IsZero() {
		parts = append(parts, "mac "+l.MAC.String())
	}
	parts = append(parts, fmt.Sprintf("mtu %d", l.MTU), fmt.Sprintf("table %d", l.Table))
	if l.Gateway != nil {
		parts = append(parts, fmt.Sprintf("the host's 127.0.0.1 is %s", l.Gateway.Host))
	}
	if l.Endpoint {
		parts = append(parts, "MPTCP endpoint")
	}
	return strings.Join(parts, ", ")
}
