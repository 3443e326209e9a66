// SPDX-License-Identifier: Apache-2.0

// Package httpserve serves data of this user's instances over HTTP. Clients must know the
// address, because its path contains a token. A cookie is not suitable: a browser sends
// it to every port of a host (RFC 6265, section 8.5), and other users can listen on
// loopback ports, too. Requests only read data.
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

// Server controls access. Make it with New.
type Server struct {
	program string
	token   string
	limit   time.Duration // time for a client to read a response
}

// maxConns is the maximum number of simultaneous connections. Further connections
// wait.
const maxConns = 64

// minToken is the minimum length of a token that a user chooses.
const minToken = 16

// New makes a server with a new token. Error messages begin with program; a client must
// read a response within limit.
func New(program string, limit time.Duration) *Server {
	return &Server{program, rand.Text(), limit} // 130 bits, crypto/rand
}

// TakeToken reads the token from a file. It rejects a file that other users can
// read.
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
		return fmt.Errorf("%s: other users can access it; run chmod 600 %[1]s", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.Trim(token, "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return fmt.Errorf("%s: no valid token; expected at least %d letters, digits, '-' and '_'", file, minToken)
	}
	s.token = token
	return nil
}

// Path returns the common prefix of all paths, which contains the token.
func (s *Server) Path() string { return "/" + s.token + "/" }

// policy allows the page to load resources only from this server, and forbids
// embedding it in frames.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Guard passes requests to next if they are meant for this server, contain the token and
// use the method GET. It removes the token from the path.
func (s *Server) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer") // the address contains the token
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		ctrl := http.NewResponseController(w)
		if err := ctrl.SetWriteDeadline(time.Now().Add(s.limit)); err != nil { // event streams extend this deadline
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		first, rest, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		// The server does not read the body of a rejected request, so it closes the
		// connection.
		refuse := func(status int, why string) {
			h.Set("Connection", "close")
			http.Error(w, s.program+": "+why, status)
		}
		switch {
		case !ownHost(r.Host):
			refuse(http.StatusForbidden, "use its IP address or localhost, not a host name")
			return
		case !same(first, s.token):
			refuse(http.StatusForbidden, "no valid token; open the address that it printed")
			return
		case r.Method != http.MethodGet: // a HEAD request for a stream would never end
			h.Set("Allow", "GET")
			refuse(http.StatusMethodNotAllowed, "only GET is allowed")
			return
		case r.ContentLength != 0:
			refuse(http.StatusBadRequest, "requests must not have a body")
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

// ownHost reports whether a Host header is safe against DNS rebinding: it is an address,
// or localhost, which browsers never look up (RFC 6761, section 6.3).
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// same compares two strings in constant time, which depends neither on their
// contents nor on their lengths.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
