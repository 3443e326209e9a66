// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"

	"net/netip"
	"strconv"
	"strings"
)

// MaxAllows is the maximum number of destinations that a run can permit.
const MaxAllows = 256

// maxSent bounds the limit of bytes of a rule.
const maxSent = 1 << 40

// Allow is a destination that a run may reach: the addresses of a name, or all
// addresses of a prefix, on the given ports of the given protocol.
type Allow struct {
	Name     string       // in lower case, without a final dot; *.NAME means all names below NAME; empty: Prefix applies
	Prefix   netip.Prefix // if there is no name
	Port     uint16       // the only port, or the first one; 0: all ports
	Last     uint16       // the last port; 0: Port is the only one
	Protocol string       // tcp, udp, dns, or empty for tcp and udp

	Connections uint64 // TCP connections and UDP port pairs that the rule permits in a run; 0: any number
	Sent        uint64 // bytes that the program may send on them; 0: any number
}

// onlyDNS is the protocol of rules that permit queries for a name, but no connection.
const onlyDNS = "dns"

const allowForm = "expected NAME[:PORTS] or CIDR[:PORTS], such as pypi.org:443, *.example.com:8000-8100/tcp or 10.0.0.0/8"

// ParseAllow parses NAME or CIDR, with ":PORT" or ":FIRST-LAST" and "/tcp", "/udp" or "/dns"
// if these limit it. A name may be international, and may end with a dot.
func ParseAllow(s string) (a Allow, err error) {
	if strings.Contains(s, "//") {
		return Allow{}, fmt.Errorf("%q is a URL; %s", s, allowForm)
	}
	rest, limits, limited := strings.Cut(s, ",")
	if limited {
		if err := a.parseLimits(limits); err != nil {
			return Allow{}, fmt.Errorf("%q: %w", s, err)
		}
	}
	for _, protocol := range []string{"tcp", "udp", onlyDNS} {
		if before, found := strings.CutSuffix(rest, "/"+protocol); found {
			rest, a.Protocol = before, protocol
			break
		}
	}
	name, port, given := strings.Cut(rest, ":")
	if _, err := netip.ParseAddr(name); err == nil || strings.HasPrefix(rest, "[") || strings.Contains(rest, "/") || strings.Count(rest, ":") > 1 {
		last := ""
		if n := strings.LastIndexByte(rest, '-'); n >= 0 {
			rest, last = rest[:n], rest[n+1:]
		}
		h, err := ParseHostNet(rest)
		if err != nil {
			text := strings.Replace(err.Error(), hostNetForm, allowForm, 1)
			return Allow{}, fmt.Errorf("%s", text)
		}
		a.Prefix, a.Port = h.Prefix, h.Port
		if last != "" {
			if a.Port, a.Last, err = parsePorts(fmt.Sprintf("%d-%s", h.Port, last)); err != nil {
				return Allow{}, fmt.Errorf("%q: %w", s, err)
			}
		}
		return a, a.checked(s)
	}
	if given {
		if a.Port, a.Last, err = parsePorts(port); err != nil {
			return Allow{}, fmt.Errorf("%q: %w", s, err)
		}
	}
	below, wild := strings.CutPrefix(strings.TrimSuffix(name, "."), "*.")
	if strings.ContainsFunc(below, func(c rune) bool { return c > '~' }) {
		if below, err = toASCII(below); err != nil {
			return Allow{}, fmt.Errorf("%q: %q %w", s, name, err)
		}
	}
	below = strings.ToLower(below)
	// An address in another notation, such as 127.1, would never match.
	if !isHostName(below) || strings.Trim(below[strings.LastIndexByte(below, '.')+1:], "0123456789") == "" {
		return Allow{}, fmt.Errorf("%q: %q is neither a host name nor an address; %s", s, name, allowForm)
	}
	if a.Name = below; wild {
		a.Name = "*." + below
	}
	return a, a.checked(s)
}

// checked is check with the text in the error.
func (a Allow) checked(s string) error {
	if err := a.check(); err != nil {
		return fmt.Errorf("%q: %w", s, err)
	}
	return nil
}

// parseLimits parses "connections=N" and "sent=SIZE".
func (a *Allow) parseLimits(s string) error {
	for limit := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(limit, "=")
		var err error
		switch {
		case key == "connections" && a.Connections == 0:
			a.Connections, err = parseConnections(value)
		case key == "sent" && a.Sent == 0:
			a.Sent, err = parseSize(value, 1, maxSent)
		default:
			return fmt.Errorf("%q is no limit; expected connections=N or sent=SIZE, each once", limit)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func parseConnections(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q; expected a number from 1", s)
	}
	return n, nil
}

// check reports parts that do not fit together.
func (a Allow) check() error {
	if a.Protocol == onlyDNS && (a.Connections != 0 || a.Sent != 0) {
		return errors.New("dns permits no connections, so it cannot limit them")
	}
	if a.Protocol == onlyDNS && (a.Name == "" || a.Port != 0) {
		return errors.New("dns applies to a name without ports; expected tcp or udp")
	}
	return nil
}

// parsePorts parses PORT or FIRST-LAST. last is 0 if there is only one port.
func parsePorts(s string) (first, last uint16, err error) {
	from, to, ranged := strings.Cut(s, "-")
	n, err := ParsePort(from)
	if err != nil || !ranged {
		return uint16(n), 0, err
	}
	m, err := ParsePort(to)
	if err == nil && m < n {
		err = fmt.Errorf("%q is not a range of ports; expected FIRST-LAST", s)
	}
	return uint16(n), uint16(m), err
}

// Permits reports whether the rule covers a port of a protocol. A rule without ports covers
// neither 53 nor 853: name servers there could resolve any name, or carry any data.
func (a Allow) Permits(protocol string, port uint16) bool {
	if a.Protocol != "" && a.Protocol != protocol {
		return false
	}
	if a.Port == 0 {
		return port != 53 && port != 853
	}
	return port == a.Port || a.Port < port && port <= a.Last
}

// Ports formats the ports and the protocol for messages, such as "port 443 of tcp". It is
// empty if the rule limits neither.
func (a Allow) Ports() string {
	text := ""
	switch {
	case a.Last != 0:
		text = fmt.Sprintf("ports %d-%d", a.Port, a.Last)
	case a.Port != 0:
		text = fmt.Sprintf("port %d", a.Port)
	}
	if a.Protocol != "" {
		text += " of " + a.Protocol
	}
	return strings.TrimPrefix(text, " of ")
}

// Matches reports whether a query for name falls under the rule. The name is in
// lower case, without a final dot.
func (a Allow) Matches(name string) bool {
	if below, wild := strings.CutPrefix(a.Name, "*"); wild {
		return len(name) > len(below) && strings.HasSuffix(name, below)
	}
	return a.Name != "" && name == a.Name
}

// String formats the destination for ParseAllow.
func (a Allow) String() string {
	s := a.Name
	if s == "" {
		s = HostNet{a.Prefix, a.Port}.String()
	} else if a.Port != 0 {
		s += ":" + strconv.Itoa(int(a.Port))
	}
	if a.Last != 0 {
		s += "-" + strconv.Itoa(int(a.Last))
	}
	if a.Protocol != "" {
		s += "/" + a.Protocol
	}
	if a.Connections != 0 {
		s += ",connections=" + strconv.FormatUint(a.Connections, 10)
	}
	if a.Sent != 0 {
		s += ",sent=" + FormatMem(a.Sent)
	}
	return s
}

// MarshalText formats the destination for ParseAllow.
func (a Allow) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (a *Allow) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAllow(string(text))
	return err
}
