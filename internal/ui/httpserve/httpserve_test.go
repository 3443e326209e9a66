// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseListen(t *testing.T) {
	for text, want := range map[string]string{
		"8080": "127.0.0.1:8080", "0": "127.0.0.1:0", "[::1]:80": "[::1]:80", "0.0.0.0:9": "0.0.0.0:9",
		"": "", "x": "", "127.0.0.1": "", "65536": "", "localhost:80": "", ":80": "",
	} {
		at, err := ParseListen(text)
		if err != nil && want != "" || err == nil && at.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, at, err, want)
		}
	}
}

// TakeToken rejects a token that other users can read or that is too short.
func TestToken(t *testing.T) {
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{"0123456789abcdef\n", 0o600, ""},
		{"0123456789abcdef", 0o644, "other users can access it; run chmod 600 "},
		{"0123456789abcde\n", 0o600, "no valid token; expected at least 16"},
		{"0123456789abcdef/x\n", 0o600, "no valid token; expected at least 16"},
		{"", 0o600, "no valid token"},
	} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		s := New("x", time.Second)
		err := s.TakeToken(file)
		if c.want == "" && (err != nil || s.Path() != "/0123456789abcdef/") {
			t.Errorf("%q: %s, %v", c.text, s.Path(), err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if err := New("x", time.Second).TakeToken("/no/such"); err == nil {
		t.Error("a file that does not exist")
	}
}
