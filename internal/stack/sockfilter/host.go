// SPDX-License-Identifier: Apache-2.0

package sockfilter

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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

// port parses the operand of dport and sport: :PORT or PORT, optionally with a family
// before it.
func (p *parser) port(local bool, op, word string) (test, error) {
	what := "dport"
	if local {
		what = "sport"
	}
	family, rest := cutFamily(word)
	rest = strings.TrimPrefix(rest, ":")
	if family == unix.AF_UNIX || family == unix.AF_PACKET || family == unix.AF_NETLINK {
		return nil, fmt.Errorf("%s %q: sockets of this family have no ports; expected %s", what, word, operand[what])
	}
	if rest == "*" && op == "=" {
		return ofFamily(family, func(*sockdiag.Socket) bool { return true }), nil
	}
	n, err := parsePort(rest)
	if err != nil {
		return nil, fmt.Errorf("%s %q; expected %s", what, word, operand[what])
	}
	compare := func(is func(have, want int) bool) test {
		return ofFamily(family, func(s *sockdiag.Socket) bool {
			ap, want := side(local, s), n.of(s)
			return ap.IsValid() && want >= 0 && is(int(ap.Port()), want)
		})
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

// families are the words that may precede an address.
var families = map[string]int{
	"inet": unix.AF_INET, "inet6": unix.AF_INET6, "unix": unix.AF_UNIX, "link": unix.AF_PACKET, "netlink": unix.AF_NETLINK,
}

func cutFamily(word string) (family int, rest string) {
	if name, rest, ok := strings.Cut(word, ":"); ok && families[name] != 0 {
		return families[name], rest
	}
	return 0, word
}

func ofFamily(family int, t test) test {
	if family == 0 {
		return t
	}
	return func(s *sockdiag.Socket) bool { return s.Family == family && t(s) }
}

// host parses the operand of dst and src.
func host(local bool, word string) (test, error) {
	family, rest := cutFamily(word)
	switch family {
	case unix.AF_UNIX:
		return unixName(local, rest)
	case unix.AF_PACKET:
		return link(local, rest)
	case unix.AF_NETLINK:
		return netlink(local, rest)
	}
	if rest == "" {
		return nil, errors.New("no address")
	}
	addr, number, hasPort := cutPort(rest)
	t := func(*sockdiag.Socket) bool { return true }
	if addr != "" && addr != "*" && addr != "any" && addr != "all" && addr != "default" {
		prefix, err := parsePrefix(addr)
		if err != nil || family != 0 && prefix.Addr().Is4() != (family == unix.AF_INET) {
			return nil, errors.New("no address of this family")
		}
		t = func(s *sockdiag.Socket) bool { return contains(prefix, side(local, s).Addr()) }
	}
	if hasPort && number != "*" {
		n, err := parsePort(number)
		if err != nil {
			return nil, err
		}
		return ofFamily(family, func(s *sockdiag.Socket) bool {
			ap := side(local, s)
			return ap.IsValid() && int(ap.Port()) == n.of(s) && t(s)
		}), nil
	}
	return ofFamily(family, t), nil
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

// parsePrefix parses an address in iproute2's forms: IPv4 may omit zeros at the end
// (127/8), and the length may be a mask (/255.0.0.0).
func parsePrefix(text string) (netip.Prefix, error) {
	host, length, hasLength := strings.Cut(text, "/")
	if !strings.Contains(host, ":") {
		for strings.Count(host, ".") < 3 && host != "" {
			host += ".0"
		}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address", text)
	}
	bits := addr.BitLen()
	if mask, err := netip.ParseAddr(length); hasLength && err == nil && mask.Is4() && addr.Is4() {
		ones, size := net.IPMask(mask.AsSlice()).Size()
		if size == 0 {
			return netip.Prefix{}, fmt.Errorf("%q is not a mask", length)
		}
		bits = ones
	} else if hasLength {
		if bits, err = strconv.Atoi(length); err != nil {
			return netip.Prefix{}, err
		}
	}
	return addr.Prefix(bits)
}

// contains follows the kernel (inet_diag_bc_run): an IPv4 address mapped to IPv6 matches
// an IPv4 prefix, but not the other way round.
func contains(p netip.Prefix, a netip.Addr) bool {
	if p.Addr().Is4() {
		a = a.Unmap()
	}
	return p.Contains(a)
}

// unixName matches a pattern of fnmatch(3) with * and ?, ignoring case.
func unixName(local bool, pattern string) (test, error) {
	text := regexp.QuoteMeta(pattern)
	text = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(text)
	re, err := regexp.Compile("(?is)^" + text + "$")
	if err != nil {
		return nil, err
	}
	return func(s *sockdiag.Socket) bool {
		return s.Proto == sockdiag.Unix && local && re.MatchString(s.Name)
	}, nil
}

// etherTypes are ss's names for the protocols of packet sockets.
var etherTypes = map[string]uint64{"all": unix.ETH_P_ALL, "ip": unix.ETH_P_IP, "ipv4": unix.ETH_P_IP, "ipv6": unix.ETH_P_IPV6, "arp": unix.ETH_P_ARP}

// link matches PROTOCOL:INTERFACE of packet sockets.
func link(local bool, word string) (test, error) {
	name, dev, _ := strings.Cut(word, ":")
	var protocol sockdiag.Value
	if name != "" && name != "*" {
		n, ok := etherTypes[strings.ToLower(name)]
		if !ok {
			var err error
			if n, err = strconv.ParseUint(name, 0, 16); err != nil {
				return nil, err
			}
		}
		protocol = sockdiag.Known(n)
	}
	return func(s *sockdiag.Socket) bool {
		return s.Proto == sockdiag.Packet && local && (!protocol.Known || s.Protocol == protocol) &&
			(dev == "" || dev == "*" || s.IfIndex != 0 && (s.Iface == dev || strconv.Itoa(s.IfIndex) == dev))
	}, nil
}

// netlink matches PROTOCOL:PORTID of netlink sockets; "kernel" is the kernel's port.
func netlink(local bool, word string) (test, error) {
	name, id, _ := strings.Cut(word, ":")
	var protocol, portID sockdiag.Value
	if name != "" && name != "*" {
		n, ok := sockdiag.NetlinkProtocol(name)
		if !ok {
			var err error
			if n, err = strconv.ParseUint(name, 0, 8); err != nil {
				return nil, err
			}
		}
		protocol = sockdiag.Known(n)
	}
	if id == "kernel" {
		portID = sockdiag.Known(0)
	} else if id != "" && id != "*" {
		n, err := strconv.ParseUint(id, 0, 32)
		if err != nil {
			return nil, err
		}
		portID = sockdiag.Known(n)
	}
	return func(s *sockdiag.Socket) bool {
		at := s.PortID
		if !local {
			at = s.Peer
		}
		return s.Proto == sockdiag.Netlink && (!protocol.Known || s.Protocol == protocol) && (!portID.Known || at == portID)
	}, nil
}
