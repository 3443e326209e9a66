// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Proxy is a parsed URL of a proxy.
type Proxy struct {
	HTTP           bool // otherwise SOCKS5
	User, Password string
	Host           string // name or address
	Port           uint16
}

const proxyForm = "expected socks5://[USER:PASSWORD@]HOST:PORT, or http:// with the same parts"

// ParseProxy parses the URL of a proxy. Errors do not repeat it, because it may contain a
// password.
func ParseProxy(s string) (p Proxy, err error) {
	scheme, rest, _ := strings.Cut(s, "://")
	switch scheme {
	case "http":
		p.HTTP = true
	case "socks5", "socks5h":
	default:
		return p, errors.New("unknown kind of proxy; " + proxyForm)
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		rest = rest[at+1:]
		if p.User, err = unescape(user); err == nil {
			p.Password, err = unescape(password)
		}
		if err != nil || p.User == "" || len(p.User) > 255 || len(p.Password) > 255 {
			return p, errors.New("the user and the password need 1 to 255 bytes, with %25 for %, %3A for : and %40 for @; " + proxyForm)
		}
	}
	host, port, err := net.SplitHostPort(strings.TrimSuffix(rest, "/"))
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsAny(host, "/?# ") {
		return p, errors.New("the host or the port is missing or malformed; " + proxyForm)
	}
	p.Host, p.Port = host, uint16(n)
	return p, nil
}

// unescape replaces %XX (RFC 3986, 2.1).
func unescape(s string) (string, error) {
	parts := strings.Split(s, "%")
	b := []byte(parts[0])
	for _, part := range parts[1:] {
		one, err := hex.DecodeString(part[:min(2, len(part))])
		if err != nil || len(one) != 1 {
			return "", hex.ErrLength
		}
		b = append(append(b, one...), part[2:]...)
	}
	return string(b), nil
}

// String formats the proxy for messages, without its password.
func (p *Proxy) String() string {
	s := "socks5://"
	if p.HTTP {
		s = "http://"
	}
	if p.User != "" {
		s += fmt.Sprintf("%s:...@", p.User)
	}
	return s + net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
}
