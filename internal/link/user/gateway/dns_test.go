// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestNameServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	r := newResolver(path, new(Config).dial)
	first := func() string { return r.current()[0].String() }
	if got := first(); got != "127.0.0.1:53" {
		t.Errorf("without a file: %s", got)
	}
	for i, tc := range []struct{ text, want string }{
		{"nameserver 192.0.2.1\n", "192.0.2.1:53"},
		{"# none\nsearch x\n", "127.0.0.1:53"},
		{"nameserver  fe80::1%lo # comment", "[fe80::1%lo]:53"},
	} {
		if err := os.WriteFile(path, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		if got := first(); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.text, got, tc.want)
		}
	}
}

func TestServerFailure(t *testing.T) {
	query := []byte{0x12, 0x34, 1, 0x20, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1}
	a := serverFailure(query)
	if a[0] != 0x12 || a[1] != 0x34 || a[2] != 0x81 || a[3] != 0xa2 || len(a) != len(query) {
		t.Errorf("% x", a)
	}
	if query[2] != 1 {
		t.Error("the query was changed")
	}
}
