// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"curl --password=hunter2 http://x/":                         "curl --password=*** http://x/",
		"mysql --password hunter2 db":                               "mysql --password *** db",
		"API_KEY=abc DEBUG=1":                                       "API_KEY=*** DEBUG=1",
		"https://joe:pw@example.com/p and ftp://a@b/":               "https://***@example.com/p and ftp://***@b/",
		"GET /?token=abc&page=2":                                    "GET /?token=***&page=2",
		"Authorization: Bearer abc.def-ghi":                         "Authorization: ***",
		"-H Cookie: session=1; b=2":                                 "-H Cookie: ***",
		`{"password": "hunter2", "page": 2}`:                        `{"password": "***", "page": 2}`,
		"net.ipv4.tcp_fastopen_key = 0-1-2-3":                       "net.ipv4.tcp_fastopen_key = ***",
		"net.ipv6.conf.all.stable_secret = fe80::1":                 "net.ipv6.conf.all.stable_secret = ***",
		"private key: yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=": "private key: ***",
		"net.ipv4.tcp_ecn = 2":                                      "net.ipv4.tcp_ecn = 2",
		"TcpExtTCPFastOpenCookieReqd 0":                             "TcpExtTCPFastOpenCookieReqd 0",
		"passt: a program; TcpPassiveOpens 3":                       "passt: a program; TcpPassiveOpens 3",
		"tap0 at 10.0.0.1/24, mode 0700":                            "tap0 at 10.0.0.1/24, mode 0700",
	} {
		if got := Text(in); got != want {
			t.Errorf("%s\n becomes %s\n want    %s", in, got, want)
		}
	}
	got := Words([]string{"mysql", "-phunter2", "--token", "abc", "-u", "joe:pw", "plain"})
	if want := []string{"mysql", "-p***", "--token", "***", "-u", "***", "plain"}; !slices.Equal(got, want) {
		t.Errorf("words: %q", got)
	}
}

// read unpacks a report.
func read(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil || h.Mode != 0o600 {
			t.Fatal(err, h.Mode)
		}
		parts[h.Name] = string(text)
	}
}

func TestReport(t *testing.T) {
	at := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	b := New("web", "a test", at)
	b.Add("a.txt", "the first", "password=hunter2\n")
	b.Add("long.txt", "the second", strings.Repeat("first line\n", PartMax/10)+"last line\n")
	b.AddJSON("c.json", "the third", map[string]int{"n": 1})
	whole := filepath.Join(t.TempDir(), "whole")
	if err := os.WriteFile(whole, []byte("password="+strings.Repeat("hidden", PartMax/6)+"\nlast line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.AddFile("cut.txt", "a file", whole)
	b.AddFile("d", "a file", filepath.Join(t.TempDir(), "none"))
	b.NoteMissing("e", errors.New("token=abc: no answer"))
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	parts := read(t, &out)
	const folder = "web-20261122-060000/"
	if got := parts[folder+"a.txt"]; got != "password=***\n" {
		t.Errorf("%q", got)
	}
	if long := parts[folder+"long.txt"]; len(long) > PartMax || !strings.HasPrefix(long, "first line\n") || !strings.HasSuffix(long, "last line\n") {
		t.Errorf("%d bytes: %.20q", len(long), long)
	}
	if cut := parts[folder+"cut.txt"]; cut != "last line\n" { // the cut line may contain a secret without its name
		t.Errorf("%d bytes: %.20q", len(cut), cut)
	}
	for _, want := range []string{"a test\n", "instance web", "the first", "the beginning is omitted", "d: open ", "e: token=***", "look like secrets"} {
		if !strings.Contains(parts[folder+"README.txt"], want) {
			t.Errorf("README.txt lacks %q:\n%s", want, parts[folder+"README.txt"])
		}
	}
}

// Keep keeps the newest reports and does not remove other files.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	other := filepath.Join(dir, "lklrun", "mine.tar.gz")
	var paths []string
	for n := range keepMost + 2 {
		b := New(fmt.Sprintf("w%d", 9-n), "a test", time.Date(2026, 11, 22, 6, n, 0, 0, time.UTC))
		path, err := b.Keep()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		if n == 0 {
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n, path := range append(paths, other) {
		if _, err := os.Stat(path); (err == nil) != (n >= 2) {
			t.Errorf("%s: %v", path, err)
		}
	}
	st, err := os.Stat(paths[6])
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := Dir(func(string) string { return "" }); err == nil {
		t.Error("a place without XDG_STATE_HOME and HOME")
	}
	t.Setenv("XDG_STATE_HOME", "/dev/null")
	if _, err := New("x", "", time.Now()).Keep(); err == nil {
		t.Error("kept in /dev/null")
	}
}
