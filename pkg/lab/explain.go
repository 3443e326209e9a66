// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"strings"

	"github.com/lklrun/lklrun/internal/base/text"
)

// Write prints the plan in readable form.
func (p *Plan) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "lab %s: %s, %s\n", p.Name, text.Plural(len(p.Nodes), "node"), text.Plural(len(p.Wires), "wire"))
	for _, wire := range p.Wires {
		fmt.Fprintf(&b, "\nwire %s: ", wire.Name)
		for n, network := range wire.Networks {
			if n > 0 {
				b.WriteString(" and ")
			}
			b.WriteString(network.String())
		}
		if wire.Settings != "" {
			b.WriteString(", " + strings.ReplaceAll(strings.ReplaceAll(wire.Settings, ",", ", "), "=", " ") + " in each direction")
		}
		b.WriteString("\n")
		for _, e := range wire.Ends {
			fmt.Fprintf(&b, "  %s %s %s\n", e.Node, e.Interface, strings.Join(p.addresses(e), " "))
		}
	}
	for _, n := range p.Nodes {
		fmt.Fprintf(&b, "\nnode %s: stack %s", n.Name, n.Stack)
		if n.Router {
			b.WriteString(", router")
		}
		if n.Server {
			b.WriteString(", server")
		}
		b.WriteString("\n")
		for _, i := range n.Interfaces {
			fmt.Fprintf(&b, "  %s at %s", i.Name, i.Wire)
			for _, a := range i.Addresses {
				b.WriteString(" " + a.String())
			}
			b.WriteString("\n")
			for _, r := range i.Routes {
				to := r.To.String()
				if r.To.Bits() == 0 {
					to = "default"
				}
				fmt.Fprintf(&b, "    route %s via %s (%s)\n", to, r.Via, r.Router)
			}
		}
		if len(n.Run) > 0 {
			fmt.Fprintf(&b, "  run %s\n", text.Quote(n.Run))
		}
	}
	if len(p.Steps) > 0 {
		b.WriteString("\nsteps\n")
	}
	for n, s := range p.Steps {
		fmt.Fprintf(&b, "%3d. %s\n", n+1, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// addresses returns the addresses of an end.
func (p *Plan) addresses(e WireEnd) []string {
	var all []string
	for _, n := range p.Nodes {
		for _, i := range n.Interfaces {
			for _, a := range i.Addresses {
				if n.Name == e.Node && i.Name == e.Interface {
					all = append(all, a.Addr().String())
				}
			}
		}
	}
	return all
}

// String describes the step in one line.
func (s Step) String() string {
	switch {
	case s.Wait != "":
		return "wait " + s.Wait
	case s.Wire != "":
		return "wire " + s.Wire + ": " + s.Set
	}
	what := s.On + ": " + s.Run.String()
	if s.Expect != 0 {
		what += fmt.Sprintf(" (expect status %d)", s.Expect)
	}
	if s.Background {
		what += " (in the background)"
	}
	return what
}

// String returns the command as a line for sh.
func (c Command) String() string {
	if len(c) == 3 && c[0] == "sh" && c[1] == "-c" {
		return c[2]
	}
	return text.Quote(c)
}
