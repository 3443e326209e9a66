// SPDX-License-Identifier: Apache-2.0

package sockfilter

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// side returns the local or the remote address of a socket.
func side(local bool, s *sockdiag.Socket) netip.AddrPort {
	if local {
		return s.Local
	}
	return s.Remote
}

// port has a number for each protocol, because a service may have two different ones.
type port struct{ tcp, udp int }

// of returns the number for the protocol of a socket; -1 if the service does not exist
// for its protocol.
func (p port) of(s *sockdiag.Socket) int {
	if s.Proto == sockdiag.UDP || s.Proto == sockdiag.UDPLite {
		return p.udp
	}
	return p.tcp
}

// parsePort parses a number, in C notation like ss, or a service.
func parsePort(word string) (port, error) {
	if n, err := strconv.ParseUint(word, 0, 16); err == nil {
		return port{int(n), int(n)}, nil
	}
	if word == "" || word[0] < 'A' { // a number beyond 65535 is not a name
		return port{}, fmt.Errorf("%q is not a port", word)
	}
	p := port{-1, -1}
	if n, err := net.LookupPort("tcp", word); err == nil {
		p.tcp = n
	}
	if n, err := net.LookupPort("udp", word); err == nil {
		p.udp = n
	}
	if p.tcp < 0 && p.udp < 0 {
		return port{}, fmt.Errorf("%q is not a service", word)
	}
	return p, nil
}

// port parses the operand of dport and sport: :PORT or PORT.
func (p *parser) port(local bool, op, word string) (test, error) {
	what := "dport"
	if local {
		what = "sport"
	}
	n, err := parsePort(strings.TrimPrefix(word, ":"))
	if err != nil {
		return nil, fmt.Errorf("%s %q; expected %s", what, word, operand[what])
	}
	compare := func(is func(have, want int) bool) test {
		return func(s *sockdiag.Socket) bool {
			ap, want := side(local, s), n.of(s)
			return ap.IsValid() && want >= 0 && is(int(ap.Port()), want)
		}
	}
	switch op {
	case "=":
		return compare(func(have, want int) bool { return have == want }), nil
	case "!=":
		return compare(func(have, want int) bool { return have == want }).not(), nil
	case ">=":
		return compare(func(have, want int) bool { return have >= want }), nil
	case "<=":
		return compare(func(have, want int) bool { return have <= want }), nil
	case ">":
		return compare(func(have, want int) bool { return have > want }), nil
	}
	return compare(func(have, want int) bool { return have < want }), nil
}

// host parses the operand of dst and src.
func host(local bool, word string) (test, error) {
	if word == "" {
		return nil, errors.New("no address")
	}
	addr, number, hasPort := cutPort(word)
	t := func(*sockdiag.Socket) bool { return true }
	if addr != "" && addr != "*" {
		prefix, err := parsePrefix(addr)
		if err != nil {
			return nil, err
		}
		t = func(s *sockdiag.Socket) bool { return contains(prefix, side(local, s).Addr()) }
	}
	if hasPort && number != "*" {
		n, err := parsePort(number)
		if err != nil {
			return nil, err
		}
		return func(s *sockdiag.Socket) bool {
			ap := side(local, s)
			return ap.IsValid() && int(ap.Port()) == n.of(s) && t(s)
		}, nil
	}
	return t, nil
}

// cutPort splits ADDRESS[:PORT]. The address may be in brackets. They are required for an
// IPv6 address with a port.
func cutPort(word string) (addr, number string, ok bool) {
	if inner, bracketed := strings.CutPrefix(word, "["); bracketed {
		addr, rest, closed := strings.Cut(inner, "]")
		if !closed {
			return word, "", false // not an address
		}
		if bits, isPrefix := strings.CutPrefix(rest, "/"); isPrefix {
			bits, number, ok = strings.Cut(bits, ":")
			return addr + "/" + bits, number, ok
		}
		number, ok = strings.CutPrefix(rest, ":")
		if !ok && rest != "" {
			return word, "", false
		}
		return addr, number, ok
	}
	if strings.Count(word, ":") > 1 { // IPv6 without brackets
		return word, "", false
	}
	return strings.Cut(word, ":")
}

// parsePrefix parses an address, or a prefix.
func parsePrefix(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		return p.Masked(), err
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address", text)
	}
	return addr.Prefix(addr.BitLen())
}

// contains follows the kernel (inet_diag_bc_run): an IPv4 address mapped to IPv6 matches
// an IPv4 prefix, but not the other way round.
func contains(p netip.Prefix, a netip.Addr) bool {
	if p.Addr().Is4() {
		a = a.Unmap()
	}
	return p.Contains(a)
}
