// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
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
		want   string            // the closing line
		says   string            // further expected output
		kept   map[string]string // files in flaky/, with a part of each
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
			says:  "SKIP a: one\n     ok 1 - one # SKIP no root\n1 skipped\n",
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
			name:  "a test that passed when repeated",
			files: map[string]string{"b.json": goFlaky("T", "it broke")},
			want:  "2 passed, 0 failed",
			says:  "FLAKY b: p T\n     --- FAIL: T/a\n     it broke\n",
			kept:  map[string]string{"b-p-T.txt": "it broke"},
		},
		{
			name: "a part that passed when repeated",
			files: map[string]string{
				"a.first": "1..2\nok 1 - one\n# two is late\nnot ok 2 - two\n",
				"a.tap":   "1..2\nok 1 - one\nok 2 - two\n",
			},
			want: "2 passed, 0 failed",
			says: "FLAKY a: two",
			kept: map[string]string{"a-two.txt": "# two is late\n"},
		},
		{
			name:   "a part that failed twice",
			files:  map[string]string{"a.first": "1..1\nnot ok 1 - one\n", "a.tap": "1..1\nnot ok 1 - one\n"},
			want:   "0 passed, 1 failed",
			says:   "FAIL a: one",
			status: 1,
		},
		{
			name:   "too many that passed when repeated",
			files:  map[string]string{"b.json": goFlaky("T", "") + goFlaky("U", "") + goFlaky("V", "")},
			want:   "6 passed, 1 failed",
			says:   "FAIL 3 tests passed only when repeated, and at most 2 may\n     b: p T\n",
			kept:   map[string]string{"b-p-T.txt": "", "b-p-U.txt": "", "b-p-V.txt": ""},
			status: 1,
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
			if got := run([]string{dir}, filepath.Join(dir, "flaky"), false, tt.strict, &out, &out); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := lines[len(lines)-1]; got != tt.want {
				t.Errorf("closing line %q, want %q\n%s", got, tt.want, out.String())
			}
			if !strings.Contains(out.String(), tt.says) {
				t.Errorf("%q is not said in\n%s", tt.says, out.String())
			}
			kept, _ := filepath.Glob(filepath.Join(dir, "flaky", "*")) // a constant pattern causes no error
			if len(kept) != len(tt.kept) {
				t.Errorf("kept %q, want %d files", kept, len(tt.kept))
			}
			for name, part := range tt.kept {
				if text, err := os.ReadFile(filepath.Join(dir, "flaky", name)); err != nil || !strings.Contains(string(text), part) {
					t.Errorf("%s: %q, %v", name, text, err)
				}
			}
		})
	}
}

// goFlaky returns the output of `go test -json` for two tests of a package. One of them
// fails with a message in a subtest, and passes when it is repeated.
func goFlaky(name, message string) string {
	var b strings.Builder
	say := func(action, test, output string) {
		e := map[string]string{"Action": action, "Package": "p", "Test": test, "Output": output}
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		b.Write(append(line, '\n'))
	}
	say("run", name, "")
	say("run", name+"/a", "")
	say("output", name+"/a", message+"\n")
	say("fail", name+"/a", "")
	say("fail", name, "")
	say("pass", name+"Other", "")
	say("fail", "", "")
	say("run", name, "")
	say("output", name, "fine\n")
	say("pass", name, "")
	say("pass", "", "")
	return b.String()
}
