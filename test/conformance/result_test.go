// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTap(t *testing.T) {
	out := "TAP version 13\n1..4\n# RUN x\nok 1 a.one\nnot ok 2 - b two\nok 3 # SKIP no root\nok 4 c # SKIP none\n# Totals\n"
	want := results{"a.one": pass, "b_two": fail, "": skip, "c": skip}
	if got := tap([]byte(out)); !maps.Equal(got, want) {
		t.Errorf("tap: got %v, want %v", got, want)
	}
	if got := tap([]byte("token 1 x\nok\nOK. All tests passed\n")); len(got) != 0 {
		t.Errorf("tap found %v where there is none", got)
	}
}

func TestGoResults(t *testing.T) {
	lines := []string{
		`{"Action":"start"}`,
		`{"Action":"run","Test":"TestA"}`,
		`{"Action":"run","Test":"TestA/sub"}`,
		`{"Action":"output","Test":"TestA/sub","Output":"    x_test.go:1: wrong\n"}`,
		`{"Action":"fail","Test":"TestA/sub"}`,
		`{"Action":"fail","Test":"TestA"}`,
		`{"Action":"run","Test":"TestB"}`,
	}
	got, said, err := goResults([]byte(strings.Join(lines, "\n")), 2)
	if want := (results{"TestA": fail, "TestA/sub": fail, "TestB": crash}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if !strings.Contains(said, "x_test.go:1: wrong") {
		t.Errorf("what the test said is lost: %q", said)
	}
	lines = append(lines, `{"Action":"output","Output":"panic: test timed out after 1s\n"}`)
	if got, _, _ := goResults([]byte(strings.Join(lines, "\n")), 2); got["TestB"] != hang {
		t.Errorf("a test that was running at the time-out: %v", got["TestB"])
	}
}

func TestExclusions(t *testing.T) {
	all, err := readExclusions("exclusions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.mode == native {
			t.Errorf("%s: the control is excluded by * alone", e.test)
		}
	}
	e := exclusion{suite: "go-*", mode: "mptcp", test: "TestA*", reason: "why"}
	for _, c := range []struct {
		suite, mode, test string
		want              bool
	}{
		{"go-net", "mptcp", "TestA", true},
		{"go-net", "mptcp", "TestA/sub/more", true},
		{"go-net", "vanilla", "TestA", false},
		{"go-net", native, "TestA", false},
		{"kernel-net", "mptcp", "TestA", false},
		{"go-net", "mptcp", "TestB", false},
	} {
		if got := e.matches(c.suite, c.mode, c.test); got != c.want {
			t.Errorf("%v: got %v", c, got)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("# x\na b c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readExclusions(bad); err == nil || !strings.Contains(err.Error(), ":2:") {
		t.Errorf("a line without a reason: %v", err)
	}
}

func TestVerdict(t *testing.T) {
	r := row{suite: "s", native: results{"a": pass, "b": pass, "c": fail, "d": skip}}
	with := func(res results) string {
		r.stacks = []column{{stack: "x", results: res}}
		return r.verdict()
	}
	if msg := with(results{"a": pass, "b": pass}); msg != "" {
		t.Errorf("all pass: %s", msg)
	}
	if msg := with(results{"a": pass, "b": skip}); !strings.Contains(msg, "1 of 2") {
		t.Errorf("one is skipped: %q", msg)
	}
	if msg := with(results{"a": pass, "b": pass, "c": hang}); !strings.Contains(msg, "hung") {
		t.Errorf("one hangs: %q", msg)
	}
}
