// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the rules of a set in the form in which a person would create
// them with this method. It changes nothing.
func Print(w io.Writer, m Method, s Set) error {
	b := backendOf(m)
	if b == nil {
		return fmt.Errorf("printing rules: unknown method %q", m)
	}
	if _, err := fmt.Fprintf(w, "# %s; add to the present value: net.ipv4.ip_local_reserved_ports = %s\n", m, s.Ports); err != nil {
		return err
	}
	return b.print(w, &s)
}

// print writes a file for nft -f.
func (n nft) print(w io.Writer, s *Set) error {
	var b strings.Builder
	family := "inet"
	if n.ingress {
		family = "netdev"
	}
	fmt.Fprintf(&b, "table %s lklrun-%s {\n", family, s.Name)
	if !n.ingress {
		fmt.Fprintf(&b, "\tchain guard {\n\t\ttype filter hook prerouting priority %d; policy accept;\n", nftPriority)
	}
	for i, l := range s.Links {
		if n.ingress {
			fmt.Fprintf(&b, "\tchain guard%d {\n\t\ttype filter hook ingress device %q priority %d; policy accept;\n", i, l.Device, nftPriority)
		}
		for _, a := range l.Addrs {
			ip, from := "ip", ""
			if a.Is6() {
				ip = "ip6"
			}
			if !n.ingress {
				from = fmt.Sprintf("iifname %q ", l.Device)
			}
			for _, proto := range []string{"tcp", "udp"} {
				for _, p := range s.Ports.ranges() {
					fmt.Fprintf(&b, "\t\t%s%s daddr %v %s dport %s counter drop comment %q\n", from, ip, a, proto, strings.Replace(colon(p), ":", "-", 1), s.tag())
				}
			}
		}
		if n.ingress {
			b.WriteString("\t}\n")
		}
	}
	if !n.ingress {
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// print writes commands.
func (t iptables) print(w io.Writer, s *Set) error {
	for _, r := range t.rules(s) {
		name := "iptables"
		if r.six {
			name = "ip6tables"
		}
		if _, err := fmt.Fprintf(w, "%s -t %s %s\n", name, t.table, strings.Join(t.insert(r, s.tag()), " ")); err != nil {
			return err
		}
	}
	return nil
}
