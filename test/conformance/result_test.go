// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

func TestScriptCases(t *testing.T) {
	out := "    TEST: rule4 check: oif redirect to table              [ OK ]\n    TEST: b    [FAIL]\n" +
		"ok 3 - c: ns1 MPTCP -> ns1 (10.0.1.1:10000) TCP # time=73ms\nnot ok 4 - d # time=1ms\n"
	want := results{"rule4_check:_oif_redirect_to_table": pass, "b": fail, "c:_ns1_MPTCP_->_ns1_(10.0.1.1)_TCP": pass, "d": fail}
	if got := scriptCases([]byte(out)); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFileResults(t *testing.T) {
	out := "\n#begin a.rb\n[1/3] T#one = 0.10 s\n[2/3] T#two = 0.00 s\n[3/3] T#three = 0.00 s\n\n  1) Failure:\nT#two [a.rb:1]:\n" +
		"  2) Skipped:\nT#three [a.rb:2]:\n\n#end a.rb 1\n\n#begin b.rb\n\n#end b.rb 124\n\n#begin c.rb\n#end b.rb 0\n[1/1] T#four = 0.00 s\n"
	want := results{"a.rb": fail, "a.rb#T#one": pass, "a.rb#T#two": fail, "a.rb#T#three": skip, "b.rb": hang, "c.rb": crash}
	if got := fileResults([]byte(out), rubyCases); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, line := range []string{
		"lklrun: the program has executed another program, which has no network under --engine preload; use --engine supervise",
		"Error: listen ENETDOWN: network is down 0.0.0.0",
		"OSError: [Errno 100] Network is down",
	} {
		out := fmt.Sprintf("\n#begin a\n%[1]s\n#end a 1\n\n#begin b\n%[1]s\n#end b 0\n\n#begin c\n#end c 1\n", line)
		want := results{"a": starts, "b": pass, "c": fail}
		if got := fileResults([]byte(out), nil); !maps.Equal(got, want) {
			t.Errorf("a program that started another: got %v, want %v", got, want)
		}
	}
	for out, what := range map[string]outcome{"TEST 1/1 [a]\rPASS x [a.phpt] \n": pass, "SKIP x [a.phpt] reason: none\n": skip, "FAIL x [a.phpt]\n": fail, "": fail} {
		if got := phpCases([]byte(out)); got[""] != what {
			t.Errorf("phpCases(%q) = %v, want %s", out, got, what)
		}
	}
	out = "test_one (a.T.test_one) ... ok\ntest_two (a.T.test_two)\nWhat it does. ... FAIL\ntest_three (a.T.test_three) ... skipped 'no'\n" +
		"test_four (a.T.test_four) ... [I 261129 wsgi:205] 200 GET /\nok\ntest_five (a.T.test_five) ... "
	want = results{"a.T.test_one": pass, "a.T.test_two": fail, "a.T.test_three": skip, "a.T.test_four": pass, "a.T.test_five": crash}
	if got := unittestCases([]byte(out)); !maps.Equal(got, want) {
		t.Errorf("unittestCases: got %v, want %v", got, want)
	}
	out = "=cases         3\n=case          s:init_per_suite\n=result        ok\n=case          s:one\n=logfile       x\n=result        ok\n" +
		"=case          s:two\n=result        failed: {\n=case          s:one\n=result        auto_skipped: no\n=case          s:three\n"
	want = results{"one": pass, "two": fail, "one/2": skip, "three": crash}
	if got := erlangCases([]byte(out)); !maps.Equal(got, want) {
		t.Errorf("erlangCases: got %v, want %v", got, want)
	}
	if got := nodeCases([]byte("1..0 # Skipped: no IPv6\n")); got[""] != skip {
		t.Errorf("nodeCases does not see a skipped test: %v", got)
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
		{"go-net", "mptcp+preload", "TestA", false},
	} {
		if got := e.matches(c.suite, c.mode, c.test); got != c.want {
			t.Errorf("%v: got %v", c, got)
		}
	}
	e.mode = "*+preload"
	if !e.matches("go-net", "mptcp+preload", "TestA") || e.matches("go-net", "mptcp", "TestA") {
		t.Errorf("%+v is about one engine", e)
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
		r.stacks = []column{{place: place{"x", supervise}, results: res}}
		return r.verdict()
	}
	if msg := with(results{"a": pass, "b": pass}); msg != "" {
		t.Errorf("all pass: %s", msg)
	}
	if msg := with(results{"a": pass, "b": skip}); !strings.Contains(msg, "1 of 2") {
		t.Errorf("one is skipped: %q", msg)
	}
	r.native["e"], r.native["f"], r.native["g"], r.native["h"], r.native["i"], r.native["j"], r.native["k"], r.native["l"], r.native["m"] = pass, pass, pass, pass, pass, pass, pass, pass, pass
	ten := results{"a": pass, "e": pass, "f": pass, "g": pass, "h": pass, "i": pass, "j": pass, "k": pass, "l": pass, "m": pass}
	if msg := with(ten); !strings.Contains(msg, "10 of 11") {
		t.Errorf("too little for supervise: %q", msg)
	}
	r.stacks = []column{{place: place{"x", preload}, results: ten}, {place: place{"y", preload}, cannot: "static"}}
	if msg := r.verdict(); msg != "" {
		t.Errorf("enough for preload: %q", msg)
	}
	if msg := with(results{"a": pass, "b": pass, "c": hang}); !strings.Contains(msg, "hung") {
		t.Errorf("one hangs: %q", msg)
	}
}

// A page keeps the rows of suites that were not run again, unless it has other columns.
func TestTableKeeps(t *testing.T) {
	o := options{out: filepath.Join(t.TempDir(), "page.md"), commit: "first", stacks: []place{{"x", supervise}}}
	write := func(suite string, res results) string {
		r := row{suite: suite, native: results{"a": pass, "b": pass}, stacks: []column{{place: o.stacks[0], results: res}}}
		if res["b"] != pass {
			r.stacks[0].bad = []string{"b (fail)"}
		}
		if err := writeTable(o, []row{r}, nil, []exclusion{{"ruby", "x", "b", "for a reason"}, {"perl", "y", "b", "elsewhere"}}); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(o.out)
		if err != nil {
			t.Fatal(err)
		}
		return string(page)
	}
	write("perl", results{"a": pass})
	o.commit = "second"
	page := write("ruby", results{"a": pass, "b": pass})
	for _, want := range []string{"| perl | first, ", " | 2 | 0 | 1, 50.0 % | 0 |\n", "| ruby | second, ", "| perl | x | `b` | fail | not explained |\n"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("want %q once in\n%s", want, page)
		}
	}
	if page = write("ruby", results{"a": pass}); !strings.Contains(page, "| ruby | x | `b` | fail | for a reason |\n") {
		t.Errorf("a difference without its reason:\n%s", page)
	}
	page = write("perl", results{"a": pass, "b": pass})
	if strings.Contains(page, "first") || strings.Contains(page, "| perl | x") || !strings.Contains(page, "| ruby | second, ") {
		t.Errorf("a row that was run again:\n%s", page)
	}
	o.stacks = []place{{"y", supervise}}
	if page = write("perl", results{"a": pass, "b": pass}); strings.Contains(page, "| ruby |") {
		t.Errorf("a row with other columns:\n%s", page)
	}
}

func TestLibuv(t *testing.T) {
	list := "active\ntcp_open                  (helpers: tcp4_echo_server)\ntcp_bind\nip4_addr\nipc_send_zero\npipe_ref3                 (helpers: pipe_echo_server)\n"
	if got := strings.Join(libuvTests(list, false), " "); got != "tcp_bind ip4_addr" {
		t.Errorf("in one process: %s", got)
	}
	if got := strings.Join(libuvTests(list, true), " "); got != "tcp_open ipc_send_zero" {
		t.Errorf("in several: %s", got)
	}
	for _, c := range []struct {
		status int
		said   string
		want   outcome
	}{
		{0, "ok 1 - x\n", pass},
		{7, "ok 1 - x # SKIP\n", skip},
		{1, "", fail},
		{134, "Assertion failed\n", fail},
		{139, "", crash},
		{255, "not ok 1 - x\n# timeout\n", hang},
		{255, "not ok 1 - x\n# exit code 255\n", fail},
		{-1, "", hang},
	} {
		if got := libuvOutcome(c.status, []byte(c.said)); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func TestCodename(t *testing.T) {
	file := filepath.Join(t.TempDir(), "os-release")
	for text, want := range map[string]string{
		"NAME=\"x\"\nID=debian\nVERSION_CODENAME=bookworm\n": "bookworm",
		"ID=other\nVERSION_CODENAME=bookworm\n":              "",
		"ID=debian\n":                                        "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := codename(file); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}

func TestCurl(t *testing.T) {
	tests := []string{"1", "2", "3", "4", "5"}
	said := "* OS: linux\nPASS: 1 - HTTP GET\nFAIL: 3 - x - data\n"
	for _, c := range []struct {
		out      string
		status   int
		want     results
		complete bool
	}{
		{said + "PASS: 5 - x\nTESTDONE: 5 tests\n\nTESTFAIL: These test cases failed: 3 4 \n\n", 1,
			results{"1": pass, "2": skip, "3": fail, "4": fail, "5": pass}, true},
		{said, -1, results{"1": pass, "2": skip, "3": fail, "4": hang}, false},
		{said, 139, results{"1": pass, "2": skip, "3": fail, "4": crash}, false},
		{"", 1, results{"1": crash}, false},
	} {
		if got, complete := curlResults([]byte(c.out), tests, c.status); !maps.Equal(got, c.want) || complete != c.complete {
			t.Errorf("%q: got %v, %v", c.out, got, complete)
		}
	}
}
