// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	tests := []struct {
		name   string
		files  map[string]string
		strict bool
		want   string // the closing line
		says   string // further expected output
		status int
	}{
		{
			name:   "nothing ran",
			want:   "0 passed, 1 failed",
			says:   "no results in it",
			status: 1,
		},
		{
			name: "all well",
			files: map[string]string{
				"a.tap":  "1..2\nok 1 - one\nok 2 - two\n",
				"b.json": `{"Action":"run","Package":"p","Test":"T"}` + "\n" + `{"Action":"pass","Package":"p","Test":"T"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n",
			},
			want: "3 passed, 0 failed",
		},
		{
			name:   "not ok",
			files:  map[string]string{"a.tap": "ok 1 - one\nnot ok 2 - two halves\n1..2\n"},
			want:   "1 passed, 1 failed",
			says:   "FAIL a: two halves",
			status: 1,
		},
		{
			name:   "died on the way",
			files:  map[string]string{"a.tap": "1..3\nok 1 - one\n"},
			want:   "1 passed, 1 failed",
			says:   "3 tests planned, 1 reported",
			status: 1,
		},
		{
			name:   "an empty stream",
			files:  map[string]string{"a.tap": "make: nothing\n"},
			want:   "0 passed, 1 failed",
			status: 1,
		},
		{
			name:  "a skip",
			files: map[string]string{"a.tap": "1..1\nok 1 - one # SKIP no root\n"},
			want:  "1 passed, 0 failed",
		},
		{
			name:   "a skip where none may be",
			files:  map[string]string{"a.tap": "1..1\nok 1 - one # SKIP no root\n", "b.json": `{"Action":"skip","Package":"p","Test":"T"}` + "\n"},
			strict: true,
			want:   "0 passed, 2 failed",
			status: 1,
		},
		{
			name: "a failing Go test, said once and with its output",
			files: map[string]string{"b.json": `{"Action":"output","Package":"p","Test":"T","Output":"    x_test.go:1: it broke\n"}` + "\n" +
				`{"Action":"fail","Package":"p","Test":"T"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"},
			want:   "0 passed, 1 failed",
			says:   "it broke",
			status: 1,
		},
		{
			name: "a test that passed by itself",
			files: map[string]string{"b.json": `{"Action":"fail","Package":"p","Test":"T/a"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T"}` + "\n" + `{"Action":"pass","Package":"p","Test":"U"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n" +
				`{"Action":"pass","Package":"p","Test":"T"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n"},
			want: "2 passed, 0 failed",
		},
		{
			name: "a package that does not build",
			files: map[string]string{"b.json": `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: undefined\n"}` + "\n" +
				`{"ImportPath":"p","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"},
			want:   "0 passed, 1 failed",
			status: 1,
		},
		{
			name:   "the go command itself",
			files:  map[string]string{"b.json": "go: no such module\n"},
			want:   "0 passed, 1 failed",
			says:   "no such module",
			status: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			if got := run(dir, false, tt.strict, &out, &out); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := lines[len(lines)-1]; got != tt.want {
				t.Errorf("closing line %q, want %q\n%s", got, tt.want, out.String())
			}
			if !strings.Contains(out.String(), tt.says) {
				t.Errorf("%q is not said in\n%s", tt.says, out.String())
			}
		})
	}
}
