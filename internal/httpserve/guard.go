// SPDX-License-Identifier: Apache-2.0

// Package httpserve serves what this user's instances show, over HTTP, to those
// who know the address: it has a token in its path. A cookie would not do, for a
// browser sends it to every port of a host (RFC 6265, section 8.5), and on loopback
// other users have ports too. Requests only read.
package httpserve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Server guards what is served. Make it with New.
type Server struct {
	program string
	token   string
	limit   time.Duration // for an answer to be taken
}

// maxConns are the connections at once; further ones wait.
const maxConns = 64

// minToken is the least length of a token that a user chooses.
const minToken = 16

// New makes a server with a token of its own. Refusals begin with program; the
// other side has to take an answer within limit.
func New(program string, limit time.Duration) *Server {
	return &Server{program, rand.Text(), limit} // 130 bits, crypto/rand
}

// TakeToken takes the token from a file, which others may not read.
func (s *Server) TakeToken(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s can be read or written by others; chmod 600 %[1]s", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.Trim(token, "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return fmt.Errorf("%s has no token; expected at least %d letters, digits, '-' and '_'", file, minToken)
	}
	s.token = token
	return nil
}

// Path is the path below which all is served: the token.
func (s *Server) Path() string { return "/" + s.token + "/" }

// policy is what the page may load and who may frame it: itself, and nobody.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Guard lets requests through that are for this server, know the token and want
// to read; what it passes on has the token taken off its path.
func (s *Server) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer") // the token is in the address
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		ctrl := http.NewResponseController(w)
		if err := ctrl.SetWriteDeadline(time.Now().Add(s.limit)); err != nil { // streams prolong it
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		first, rest, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		// What is refused has its body left unread, and its connection closed.
		refuse := func(status int, why string) {
			h.Set("Connection", "close")
			http.Error(w, s.program+": "+why, status)
		}
		switch {
		case !ownHost(r.Host):
			refuse(http.StatusForbidden, "ask for it by its address, not by a name")
			return
		case !same(first, s.token):
			refuse(http.StatusForbidden, "open the address that it printed, with the token")
			return
		case r.Method != http.MethodGet: // HEAD of a stream would have no end
			h.Set("Allow", "GET")
			refuse(http.StatusMethodNotAllowed, "there is only something to read")
			return
		case r.ContentLength != 0:
			refuse(http.StatusBadRequest, "a request has no body")
			return
		case !below:
			http.Redirect(w, r, s.Path(), http.StatusMovedPermanently)
			return
		}
		in := r.Clone(r.Context())
		in.URL.Path, in.URL.RawPath = "/"+rest, ""
		next.ServeHTTP(w, in)
	})
}

// ownHost says whether a Host header names no name that somebody else's name
// server could have pointed here (DNS rebinding): an address, or localhost, which
// browsers look up nowhere (RFC 6761, section 6.3).
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// same compares in a time that says nothing about either, nor about lengths.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
