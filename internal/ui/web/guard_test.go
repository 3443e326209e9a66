// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
)

func two() ([]instance.Info, error) {
	return []instance.Info{
		{State: instance.State{Name: "a", Stack: "mptcp", Command: []string{"curl", "<x>"}}, Running: true},
		{State: instance.State{Name: "left"}},
	}, nil
}

// TestGuard tests access control. Each line contains a request and the start of the
// response.
func TestGuard(t *testing.T) {
	s := New(two, nil)
	at := s.Path()
	for _, c := range []struct {
		method, path, host string
		status             int
		body               string
	}{
		{"GET", at, "127.0.0.1:80", 200, "<!DOCTYPE html>"},
		{"HEAD", at + "api/events", "127.0.0.1:80", 405, "lklctl web: only"},
		{"GET", at, "localhost:80", 200, "<!DOCTYPE html>"},
		{"GET", at, "[::1]:80", 200, "<!DOCTYPE html>"},
		{"GET", at, "192.0.2.1", 200, "<!DOCTYPE html>"},
		{"GET", at + "app.js", "127.0.0.1:80", 200, "// SPDX"},
		{"GET", at + "api/instances", "127.0.0.1:80", 200, `[{"name":"a","stack":"mptcp"`},
		{"GET", strings.TrimSuffix(at, "/"), "127.0.0.1:80", 301, ""},

		{"GET", "/", "127.0.0.1:80", 403, "lklctl web: no valid token"},
		{"GET", "/api/instances", "127.0.0.1:80", 403, "lklctl web: no valid token"},
		{"GET", "/app.js", "127.0.0.1:80", 403, "lklctl web: no valid token"},
		{"GET", "/?token=" + at[1:], "127.0.0.1:80", 403, "lklctl web: no valid token"},
		{"GET", strings.ToLower(at), "127.0.0.1:80", 403, "lklctl web: no valid token"},
		{"GET", at[:8] + "/", "127.0.0.1:80", 403, "lklctl web: no valid token"},
		{"GET", "/x/.." + at, "127.0.0.1:80", 403, "lklctl web: no valid token"},
		{"GET", at, "evil.example:80", 403, "lklctl web: use its IP address"},
		{"GET", at, "127.0.0.1.evil.example", 403, "lklctl web: use its IP address"},
		{"GET", at, "", 403, "lklctl web: use its IP address"},
		{"POST", at + "api/instances", "127.0.0.1:80", 405, "lklctl web: only GET"},
		{"OPTIONS", at, "127.0.0.1:80", 405, "lklctl web: only GET"},
		{"GET", at + "../web.go", "127.0.0.1:80", 0, ""},
		{"GET", at + "..%2f..%2fweb.go", "127.0.0.1:80", 0, ""},
		{"GET", at + "page/app.js", "127.0.0.1:80", 404, ""},
		{"GET", at + "api/nothing", "127.0.0.1:80", 404, ""},
		{"GET", at + "api/events?instance=..%2f..", "127.0.0.1:80", 400, `instance name "../.."`},
	} {
		r := httptest.NewRequest(c.method, "http://x"+c.path, nil)
		r.Host = c.host
		w := recorder{httptest.NewRecorder()}
		s.Handler().ServeHTTP(w, r)
		body := w.Body.String()
		what := c.method + " " + c.path + " of " + c.host
		switch {
		case c.status == 0 && (w.Code == 200 || strings.Contains(body, "package web")):
			t.Errorf("%s: %d, %.60q", what, w.Code, body)
		case c.status != 0 && w.Code != c.status, !strings.HasPrefix(body, c.body):
			t.Errorf("%s: %d, %.60q; want %d, %q", what, w.Code, body, c.status, c.body)
		}
		h := w.Result().Header
		if csp := h.Get("Content-Security-Policy"); csp != "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", what, h)
		}
		if strings.Contains(body, "left") && strings.HasSuffix(c.path, "instances") {
			t.Errorf("%s names what does not run: %s", what, body)
		}
	}
	r := httptest.NewRequest("GET", "http://127.0.0.1"+at, io.NopCloser(strings.NewReader("body")))
	w := recorder{httptest.NewRecorder()}
	if s.Handler().ServeHTTP(w, r); w.Code != http.StatusBadRequest {
		t.Errorf("with a body: %d", w.Code)
	}
}

// recorder accepts connection deadlines, which never expire.
type recorder struct{ *httptest.ResponseRecorder }

func (recorder) SetWriteDeadline(time.Time) error { return nil }
