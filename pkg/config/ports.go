// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The maximum numbers of ports on which a run listens and that it publishes.
const (
	MaxListen  = 64
	MaxPublish = 64
)

// Publish is a port of the host that is forwarded to a port of the stack.
type Publish struct {
	Addr     netip.Addr // address of the host; invalid: its loopback address
	HostPort uint16
	Port     uint16 // port in the stack
	UDP      bool
}

const publishForm = "expected [ADDRESS:]HOSTPORT:PORT[/udp], such as 8080:80 or 127.0.0.1:5353:53/udp"

// ParsePublish parses [ADDRESS:]HOSTPORT:PORT[/udp]. An IPv6 address must be in
// brackets.
func ParsePublish(s string) (Publish, error) {
	var p Publish
	rest, proto, given := strings.Cut(s, "/")
	if given && proto != "tcp" && proto != "udp" {
		return p, fmt.Errorf("%q: %q; expected tcp or udp after the slash", s, proto)
	}
	p.UDP = proto == "udp"
	cut := func() (string, bool) {
		n := strings.LastIndexByte(rest, ':')
		if n < 0 || strings.HasSuffix(rest, "]") {
			return "", false
		}
		last := rest[n+1:]
		rest = rest[:n]
		return last, true
	}
	port, ok := cut()
	if !ok {
		return p, fmt.Errorf("%q; %s", s, publishForm)
	}
	host, addressed := cut()
	if !addressed {
		host, rest = rest, ""
	}
	for _, w := range []struct {
		text string
		to   *uint16
	}{{host, &p.HostPort}, {port, &p.Port}} {
		n, err := ParsePort(w.text)
		if err != nil {
			return Publish{}, fmt.Errorf("%q: %w", s, err)
		}
		*w.to = uint16(n)
	}
	if !addressed {
		return p, nil
	}
	text := rest
	six := strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]")
	if six {
		text = text[1 : len(text)-1]
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is6() != six || a.Zone() != "" || a.Is4In6() {
		return Publish{}, fmt.Errorf("%q: %q is not an address of the host; %s", s, rest, publishForm)
	}
	p.Addr = a
	return p, nil
}

// String formats the published port for ParsePublish.
func (p Publish) String() string {
	s := strconv.Itoa(int(p.HostPort)) + ":" + strconv.Itoa(int(p.Port))
	if p.Addr.Is6() {
		s = "[" + p.Addr.String() + "]:" + s
	} else if p.Addr.IsValid() {
		s = p.Addr.String() + ":" + s
	}
	if p.UDP {
		s += "/udp"
	}
	return s
}

// MarshalText formats the published port for ParsePublish.
func (p Publish) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (p *Publish) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePublish(string(text))
	return err
}

// ParsePort parses a port number.
func ParsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port; expected a number from 1 to 65535", s)
	}
	return int(n), nil
}

// Limits of the port range for connections from a shared address.
const (
	DefaultPorts = 4096
	MinPorts     = 16
	MaxPorts     = 32768
)

// PortRange is the range of ports for connections from a shared address: First
// to Last, or Size free ports. The zero value means DefaultPorts free ports.
type PortRange struct {
	First uint16
	Last  uint16
	Size  int
}

const portRangeForm = "expected FIRST-LAST, such as 50000-52047, or a number of ports"

// ParsePortRange parses FIRST-LAST or a number of ports.
func ParsePortRange(s string) (PortRange, error) {
	var r PortRange
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		n, err := strconv.Atoi(s)
		if err != nil {
			return r, fmt.Errorf("%q; %s", s, portRangeForm)
		}
		if n == 0 { // a PortRange with size 0 means the default
			return r, fmt.Errorf("%q: 0 ports; expected %d to %d", s, MinPorts, MaxPorts)
		}
		r.Size = n
	} else {
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || a == 0 || a > b {
			return r, fmt.Errorf("%q; %s", s, portRangeForm)
		}
		r.First, r.Last = uint16(a), uint16(b)
	}
	if n := r.Len(); n < MinPorts || n > MaxPorts {
		return PortRange{}, fmt.Errorf("%q: %d ports; expected %d to %d", s, n, MinPorts, MaxPorts)
	}
	return r, nil
}

// Len returns the number of ports.
func (r PortRange) Len() int {
	switch {
	case r.First != 0:
		return int(r.Last) - int(r.First) + 1
	case r.Size != 0:
		return r.Size
	}
	return DefaultPorts
}

// IsZero reports whether no range is configured.
func (r PortRange) IsZero() bool { return r == PortRange{} }

// String formats the range for ParsePortRange.
func (r PortRange) String() string {
	if r.First != 0 {
		return fmt.Sprintf("%d-%d", r.First, r.Last)
	}
	return strconv.Itoa(r.Len())
}

// MarshalText formats the range like String.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (r *PortRange) UnmarshalText(text []byte) (err error) {
	*r, err = ParsePortRange(string(text))
	return err
}

// Ways to prevent the host's TCP from sending RSTs for connections of a stack that
// shares its address.
const (
	GuardAuto     = "auto" // nft or iptables, depending on the host
	GuardNFT      = "nft"
	GuardIPTables = "iptables"
	GuardOff      = "off"
	GuardPrint    = "print" // print the changes without making them
)

// ParseRSTGuard checks the name of a guard mode.
func ParseRSTGuard(s string) (string, error) {
	switch s {
	case GuardAuto, GuardNFT, GuardIPTables, GuardOff, GuardPrint:
		return s, nil
	}
	return "", fmt.Errorf("%q; expected %s, %s, %s, %s or %s", s, GuardAuto, GuardNFT, GuardIPTables, GuardOff, GuardPrint)
}
