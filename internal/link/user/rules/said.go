// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Several names can share an address, for example at a content delivery network. A rule for a
// name therefore also applies to the name that the program says first on a connection: in the
// hello of TLS or QUIC, or in the first request of HTTP. Data pass on as they come, so protocols that
// are neither are not delayed. A server cannot act on a hello or a request before its end, and
// the end passes on only after the check.

// maxHello bounds a hello or the head of a request.
const maxHello = 64 << 10

// Flow is a permitted flow.
type Flow struct {
	rules    *Rules
	rule     rule // that permits it; none in an audit
	socket   Socket
	protocol string
	to       netip.AddrPort
	names    []string // names that a rule permits at this destination; empty: all

	// sent is what the program has sent so far, unless the check is over.
	sent []byte
	over bool

	bad []error // reasons for refused QUIC datagrams that belong to no connection
}

// Watched reports whether the caller must pass the program's data to Sent, or to Datagram.
func (f *Flow) Watched() bool { return f != nil && (len(f.names) > 0 || f.rule.Sent != 0) }

// Checked reports that Sent will permit all further data. The caller of Sent may call it.
func (f *Flow) Checked() bool { return f.over && f.rule.Sent == 0 }

// Sent checks data of the program before they pass on. After an error, the caller must reset
// the connection.
func (f *Flow) Sent(b []byte) error {
	if !f.rule.spend(len(b)) {
		return f.rules.refused(f.socket, f.rule.spent())
	}
	if f.over || len(f.names) == 0 {
		return nil
	}
	f.sent = append(f.sent, b[:min(len(b), maxHello)]...)
	said, err := firstSaid(f.sent)
	if errors.Is(err, errMore) {
		if len(f.sent) < maxHello {
			return nil
		}
		err = errors.New("the beginning of the first request is too long to be checked")
	}
	f.over, f.sent = true, nil
	if err == nil && said.protocol == "" {
		return nil
	}
	return f.says(said, err)
}

// says decides about the names that the program has said.
func (f *Flow) says(said said, err error) error {
	reason, name := "", ""
	for _, name = range said.names {
		if a, perr := netip.ParseAddr(name); perr == nil && a.Unmap() == f.to.Addr() {
			continue // no name, but the destination itself
		}
		if !slices.Contains(f.names, name) {
			reason = fmt.Sprintf("the program asks %s for %q, which no rule permits at this address; only --allow %s permits that", said.protocol, name, f.to.Addr())
			break
		}
	}
	switch {
	case err != nil:
		reason = err.Error()
	case len(said.names) == 0 && said.protocol != "HTTP":
		reason = fmt.Sprintf("the program asks %s for no name; only --allow %s permits that", said.protocol, f.to.Addr())
	}
	if a := f.rules.Audit; a != nil {
		a.said(f, said.names, reason)
		return nil
	}
	if reason == "" {
		return nil
	}
	return f.rules.refused(f.socket, reason)
}

// said holds the names that a program has said, in lower case and without a final dot.
type said struct {
	protocol string // TLS, QUIC or HTTP; empty: another one, in which no names are known
	names    []string
}

// errMore reports that the beginning of a connection is incomplete.
var errMore = errors.New("incomplete")

// firstSaid parses the beginning of a connection. An error other than errMore reports a hello
// or a request that a server could understand in another way.
func firstSaid(b []byte) (said, error) {
	if len(b) == 0 {
		return said{}, errMore
	}
	if b[0] >= 20 && b[0] <= 22 { // change cipher spec, alert and handshake (RFC 8446, B.1)
		return tlsSaid(b)
	}
	if b[0]&0x80 != 0 {
		return oldSaid(b)
	}
	return httpSaid(b)
}

// oldSaid recognizes a ClientHello in the format of SSL 2.0, which has no name. Servers of later
// versions of TLS accept it (RFC 5246, E.2).
func oldSaid(b []byte) (said, error) {
	const head = 11
	if len(b) < head {
		if len(b) > 2 && b[2] != 1 {
			return said{}, nil
		}
		return said{}, errMore
	}
	size := int(binary.BigEndian.Uint16(b)) & 0x7fff
	ciphers, session, challenge := int(binary.BigEndian.Uint16(b[5:])), int(binary.BigEndian.Uint16(b[7:])), int(binary.BigEndian.Uint16(b[9:]))
	if b[2] != 1 || ciphers%3 != 0 || head-2+ciphers+session+challenge != size {
		return said{}, nil
	}
	if len(b) < 2+size {
		return said{}, errMore
	}
	return said{protocol: "TLS"}, nil
}

// tlsSaid returns the server name in a ClientHello, which can be in several records.
func tlsSaid(b []byte) (said, error) {
	var hello []byte
	for {
		switch {
		case len(b) > 0 && (b[0] < 20 || b[0] > 22), len(b) > 1 && b[1] != 3, len(b) > 2 && b[2] > 4:
			if hello == nil {
				return said{}, nil // not TLS
			}
			return said{}, errHello
		case len(b) < 5:
			return said{}, errMore
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		record := b[5:min(len(b), 5+size)]
		if b[0] == 22 {
			hello = append(hello, record...)
		}
		if len(hello) > 0 && hello[0] != 1 {
			return said{}, errHello
		}
		if len(hello) >= 4 {
			n := int(hello[1])<<16 | int(hello[2])<<8 | int(hello[3])
			if len(hello) >= 4+n {
				name, err := serverName(hello[4 : 4+n])
				return said{"TLS", name}, err
			}
		}
		if len(record) < size {
			return said{}, errMore
		}
		b = b[5+size:]
	}
}

var errHello = errors.New("the TLS hello is malformed")

// serverName returns the names in the extension server_name of a ClientHello (RFC 8446, 4.1.2;
// RFC 6066, 3).
func serverName(b []byte) (names []string, err error) {
	ok := true
	// vector cuts a vector whose length has n bytes from the beginning of b.
	vector := func(b *[]byte, n int) []byte {
		size := 0
		for i := range n {
			if len(*b) <= i {
				ok = false
				return nil
			}
			size = size<<8 | int((*b)[i])
		}
		if len(*b) < n+size {
			ok = false
			return nil
		}
		v := (*b)[n : n+size]
		*b = (*b)[n+size:]
		return v
	}
	if len(b) < 34 {
		return nil, errHello
	}
	b = b[34:]    // version and random
	vector(&b, 1) // session
	vector(&b, 2) // cipher suites
	vector(&b, 1) // compression methods
	if len(b) == 0 {
		return nil, nil // without extensions
	}
	extensions, found := vector(&b, 2), false
	for ok && len(extensions) > 0 {
		if len(extensions) < 2 {
			return nil, errHello
		}
		kind := binary.BigEndian.Uint16(extensions)
		extensions = extensions[2:]
		body := vector(&extensions, 2)
		if kind != 0 {
			continue
		}
		if found {
			return nil, errHello
		}
		found = true
		list := vector(&body, 2)
		ok = ok && len(body) == 0
		for ok && len(list) > 0 {
			kind := list[0]
			list = list[1:]
			if name := vector(&list, 2); kind == 0 {
				names = append(names, plainName(string(name)))
			}
		}
	}
	if !ok || len(b) > 0 {
		return nil, errHello
	}
	return names, nil
}

func plainName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// httpSaid returns the hosts in the head of a request of HTTP/1 (RFC 9112).
func httpSaid(b []byte) (said, error) {
	b = bytes.TrimLeft(b, "\r\n")
	line, rest, whole := bytes.Cut(b, []byte("\n"))
	method, _, _ := bytes.Cut(line, []byte(" "))
	if len(method) > 32 || bytes.ContainsFunc(method, notToken) || bytes.IndexByte(line, 0) >= 0 {
		return said{}, nil // not HTTP
	}
	if !whole {
		return said{}, errMore
	}
	fields := strings.Fields(string(line))
	if len(fields) < 2 || fields[0] == "PRI" || !strings.HasPrefix(strings.ToUpper(fields[len(fields)-1]), "HTTP/") {
		return said{}, nil
	}
	s := said{protocol: "HTTP"}
	for _, target := range fields[1 : len(fields)-1] {
		if _, after, absolute := strings.Cut(target, "://"); absolute && !strings.HasPrefix(target, "/") {
			if n := strings.IndexAny(after, `/?#\`); n >= 0 {
				after = after[:n]
			}
			s.names = append(s.names, hostOf(after))
		} else if strings.EqualFold(fields[0], "CONNECT") {
			s.names = append(s.names, hostOf(target))
		}
	}
	for {
		line, rest, whole = bytes.Cut(rest, []byte("\n"))
		if !whole {
			return s, errMore
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			return s, nil
		}
		// Some servers end a line at a lone CR, or take a continued line for a new one.
		for part := range strings.SplitSeq(string(line), "\r") {
			if key, value, _ := strings.Cut(part, ":"); strings.EqualFold(strings.TrimSpace(key), "host") {
				s.names = append(s.names, hostOf(strings.TrimSpace(value)))
			}
		}
	}
}

// notToken reports whether a method cannot contain a character (RFC 9110, 5.6.2).
func notToken(c rune) bool {
	return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
}

// hostOf returns the host in an authority.
func hostOf(authority string) string {
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	if in, _, found := strings.Cut(strings.TrimPrefix(host, "["), "]"); found && strings.HasPrefix(host, "[") {
		return in
	}
	host, _, _ = strings.Cut(host, ":")
	return plainName(host)
}
