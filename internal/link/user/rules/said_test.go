// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// hello returns the first bytes of a TLS client.
func hello(t *testing.T, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		c := tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // only the hello matters
		_ = c.Handshake()
		client.Close()
	}()
	b := make([]byte, maxHello)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// records distributes a hello over records of n bytes.
func records(b []byte, n int) (all []byte) {
	for b = b[5:]; len(b) > 0; b = b[min(n, len(b)):] {
		all = append(append(all, 22, 3, 1, byte(min(n, len(b))>>8), byte(min(n, len(b)))), b[:min(n, len(b))]...)
	}
	return all
}

// TestFirstSaid checks which names a beginning says, however it is distributed.
func TestFirstSaid(t *testing.T) {
	good := hello(t, "Good.Example")
	for _, tc := range []struct{ what, sent, want string }{
		{"TLS", string(good), "TLS [good.example]"},
		{"TLS without a name", string(hello(t, "")), "TLS []"},
		{"TLS in many records", string(records(good, 7)), "TLS [good.example]"},
		{"TLS after an alert", "\x15\x03\x01\x00\x02\x01\x00" + string(good), "TLS [good.example]"},
		{"no hello", "\x16\x03\x01\x00\x04\x02\x00\x00\x00", errHello.Error()},
		{"another version", "\x16\x02\x01\x00\x04\x02\x00\x00\x00", " []"},
		{"rubbish after a record", string(records(good, 7)[:12]) + "x", errHello.Error()},
		{"a cut extension", "\x16\x03\x01\x00\x2f\x01\x00\x00\x2b" + strings.Repeat("\x00", 34) + "\x00\x00\x02\x13\x01\x01\x00\x00\x09", errHello.Error()},
		{"HTTP", "GET / HTTP/1.1\r\nhOST: Good.Example.:80\r\n\r\n", "HTTP [good.example]"},
		{"HTTP after empty lines", "\r\n\nGET / HTTP/1.0\nA: b\n\n", "HTTP []"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a.example\r\nHost :b.example\r\n\r\n", "HTTP [a.example b.example]"},
		{"a folded line", "GET / HTTP/1.1\r\nX: y\r\n Host: a.example\r\nHost:b.example\r\n\r\n", "HTTP [a.example b.example]"},
		{"a lone CR", "GET / HTTP/1.1\r\nX: y\rHost: a.example\r\n\r\n", "HTTP [a.example]"},
		{"a later version", "GET / HTTP/2.0\r\nHost: a.example\r\n\r\n", "HTTP [a.example]"},
		{"a hello of SSL 2.0", "\x80\x1c\x01\x03\x01\x00\x03\x00\x00\x00\x10\x00\x00\x2f0123456789abcdef", "TLS []"},
		{"another length", "\x80\x1d\x01\x03\x01\x00\x03\x00\x00\x00\x10\x00\x00\x2f0123456789abcdef", " []"},
		{"an absolute target", "GET http://u@B.example:1/x?y HTTP/1.1\r\nHost: a.example\r\n\r\n", "HTTP [b.example a.example]"},
		{"a target with a URL", "GET /?u=http://b.example HTTP/1.1\r\nHost: a.example\r\n\r\n", "HTTP [a.example]"},
		{"CONNECT", "CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", "HTTP [b.example a.example]"},
		{"an IPv6 address", "GET / HTTP/1.1\r\nHost: [fd00::1]:80\r\n\r\n", "HTTP [fd00::1]"},
		{"another method", "frob  x  http/1.1\r\nHost: a.example\r\n\r\n", "HTTP [a.example]"},
		{"no end", "GET / HTTP/1.1\r\nHost: a.example\r\n", errMore.Error()},
		{"git", "003egit-upload-pack /repo\x00host=git.example\x00", " []"},
		{"SSH", "SSH-2.0-OpenSSH_9.2\r\n", " []"},
		{"SMTP", "EHLO a.example\r\n", " []"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", " []"},
		{"redis", "*1\r\n$4\r\nPING\r\n", " []"},
		{"binary", "\x00\x01\x02", " []"},
		{"a word", "hello", errMore.Error()},
	} {
		s, err := firstSaid([]byte(tc.sent))
		got := s.protocol + " " + fmt.Sprint(s.names)
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.what, got, tc.want)
		}
		if s.protocol == "" {
			continue
		}
		for n := range len(tc.sent) {
			if s, err := firstSaid([]byte(tc.sent[:n])); !errors.Is(err, errMore) {
				t.Errorf("%s: %d of %d bytes: %v, %v", tc.what, n, len(tc.sent), s, err)
				break
			}
		}
	}
}

// TestSaid checks that a flow by a name permits no other name, that the refused end does not
// pass, and that rules for addresses permit all names.
func TestSaid(t *testing.T) {
	const to = "10.1.0.1"
	get := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	for _, tc := range []struct{ what, sent, reason string }{
		{"the name", get("a.example"), ""},
		{"another name with this address", get("x.sub.example"), ""},
		{"the address", get(to), ""},
		{"no name", "GET / HTTP/1.0\r\n\r\n", ""},
		{"another protocol", "SSH-2.0\r\n", ""},
		{"TLS", string(hello(t, "a.example")), ""},
		{"fronting", get("evil.example"), `the program asks HTTP for "evil.example", which no rule permits at this address`},
		{"an allowed name elsewhere", get("y.sub.example"), `asks HTTP for "y.sub.example"`},
		{"an allowed name on another port", get("b.example"), `asks HTTP for "b.example"`},
		{"an expired name", get("old.sub.example"), `asks HTTP for "old.sub.example"`},
		{"another address", get("10.1.0.2"), `asks HTTP for "10.1.0.2"`},
		{"TLS for another name", string(hello(t, "evil.example")), `asks TLS for "evil.example"`},
		{"TLS without a name", string(hello(t, "")), "asks TLS for no name; only --allow 10.1.0.1 permits that"},
		{"a long head", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHello), "too long"},
	} {
		for _, size := range []int{1, 100, maxHello} {
			if size == 1 && len(tc.sent) >= maxHello {
				continue // takes seconds
			}
			f := fixed(t, "a.example:443", "*.sub.example:443", "b.example:80")
			for _, name := range []string{"a.example.", "x.sub.example.", "b.example."} {
				f.resolve(t, name, record{name, 600, to})
			}
			f.resolve(t, "y.sub.example.", record{"y.sub.example.", 600, "10.1.0.2"})
			flow, err := f.Open(Socket{Protocol: "tcp", To: netip.MustParseAddrPort(to + ":443")})
			if err != nil || !flow.Watched() {
				t.Fatal(err)
			}
			passed := 0
			for b := []byte(tc.sent); len(b) > 0 && err == nil; {
				n := min(size, len(b))
				if err = flow.Sent(b[:n]); err == nil {
					passed += n
				}
				b = b[n:]
			}
			if tc.reason == "" && err != nil || tc.reason != "" && (err == nil || !strings.Contains(err.Error(), tc.reason) || passed == len(tc.sent)) {
				t.Errorf("%s in pieces of %d bytes: %v after %d bytes", tc.what, size, err, passed)
			}
		}
	}
	f := fixed(t, "a.example", "10.0.0.0/8:443")
	f.resolve(t, "a.example.", record{"a.example.", 600, to})
	if flow, err := f.Open(Socket{Protocol: "tcp", To: netip.MustParseAddrPort(to + ":443")}); err != nil || flow.Watched() {
		t.Errorf("a rule for the address: %v", err)
	}
}

// FuzzFirstSaid checks that no beginning makes the parser panic or take back a decision.
func FuzzFirstSaid(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, err := firstSaid(b)
		for n := range len(b) {
			part, perr := firstSaid(b[:n])
			if errors.Is(perr, errMore) || perr != nil && err != nil {
				continue
			}
			if fmt.Sprint(part, perr) != fmt.Sprint(whole, err) {
				t.Fatalf("%d bytes: %v, %v; all: %v, %v", n, part, perr, whole, err)
			}
		}
	})
}
