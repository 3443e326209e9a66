// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// policy is what the page may load and who may frame it: itself, and nobody.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard lets requests through that are for this server, know the token and want
// to read; what it passes on has the token taken off its path.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer") // the token is in the address
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		ctrl := http.NewResponseController(w)
		if err := ctrl.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil { // streams prolong it
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		first, rest, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		// What is refused has its body left unread, and its connection closed.
		refuse := func(status int, why string) {
			h.Set("Connection", "close")
			http.Error(w, "lklctl web: "+why, status)
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
