// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOutcome(t *testing.T) {
	for status, want := range map[int]Outcome{0: Pass, 4: Skip, 1: Fail, 2: Fail, 125: Fail, -1: Fail} {
		if got := outcome(status); got != want {
			t.Errorf("status %d: %s, want %s", status, got, want)
		}
	}
}

func TestKernelReport(t *testing.T) {
	for output, want := range map[string]string{
		"ok 1 a\n[    3.000001] TCP: request_sock_TCP: Possible SYN flooding on port 80\n":                 "",
		"WARNING: unit does not exist\nok 1 a\n":                                                           "",
		"ok 1 a\n[    3.000001] ======\n[    3.0] WARNING: possible circular locking dependency\n[ 3.1] x": "kernel: WARNING: possible circular locking dependency",
		"[   12.345678] UBSAN: shift-out-of-bounds in net/a.c:3:4\n":                                       "kernel: UBSAN: shift-out-of-bounds in net/a.c:3:4",
	} {
		if got := kernelReport([]byte(output)); got != want {
			t.Errorf("%q: %q; expected %q", output, got, want)
		}
	}
	if got := reason([]byte("cannot open x\n[    3.000001] TCP: a message\n"), 1); got != "cannot open x" {
		t.Errorf("the reason is %q", got)
	}
}

func TestCases(t *testing.T) {
	const output = `TAP version 13
1..7
ok 1 - first
not ok 2 second
ok 3 - third # SKIP no ss
not ok 4 - fourth # TODO flaky
ok 5 - ns1 -> ns2 (10.0.1.1:10001)  MPTCP # time=12ms
ok 6 - ns1 -> ns2 (10.0.1.1:10002)  MPTCP
    ok 1 - part of a check
# ok 7 - a comment
    TEST: rule4 check                                   [ OK ]
TEST: rule6 check   [FAIL]
TEST: rule8 check   [SKIP]
all ok 3 times
`
	want := []Case{
		{"first", Pass}, {"second", Fail}, {"third", Skip}, {"fourth", Skip},
		{"ns1 -> ns2 (10.0.1.1) MPTCP", Pass}, {"ns1 -> ns2 (10.0.1.1) MPTCP (2)", Pass},
		{"rule4 check", Pass}, {"rule6 check", Fail}, {"rule8 check", Skip},
	}
	if diff := cmp.Diff(want, cases([]byte(output))); diff != "" {
		t.Error(diff)
	}
}

// TestBaseline checks which failures are regressions, also after a round trip through a file.
func TestBaseline(t *testing.T) {
	before := []Result{
		{Test: "net/a.sh", Kernel: "k", Outcome: Fail, Cases: []Case{{"one", Pass}, {"two", Fail}}},
		{Test: "net/b.sh", Kernel: "k", Outcome: Pass},
		{Test: "net/c.sh", Kernel: "k", Outcome: Skip},
		{Test: "net/d.sh", Kernel: "k", Outcome: Timeout, Output: []byte("\x1b\xff<&>")},
	}
	var file bytes.Buffer
	if err := WriteJUnit(&file, []string{"k"}, before); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	read, err := ReadJUnit("results.xml", &file)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff(NewBaseline(before), read); diff != "" {
		t.Errorf("after a round trip:\n%s", diff)
	}
	for _, test := range []struct {
		r    Result
		want Outcome
	}{
		{Result{Test: "net/a.sh", Outcome: Fail, Cases: []Case{{"one", Pass}, {"two", Fail}}}, Known},
		{Result{Test: "net/a.sh", Outcome: Fail, Cases: []Case{{"one", Fail}, {"two", Fail}}}, Fail},
		{Result{Test: "net/a.sh", Outcome: Fail}, Known},
		{Result{Test: "net/b.sh", Outcome: Fail}, Fail},
		{Result{Test: "net/b.sh", Outcome: Timeout, Cases: []Case{{"new", Fail}}}, Timeout},
		{Result{Test: "net/b.sh", Outcome: Fail, Cases: []Case{{"new", Fail}}}, Known},
		{Result{Test: "net/c.sh", Outcome: Fail}, Known},
		{Result{Test: "net/d.sh", Outcome: Timeout}, Known},
		{Result{Test: "net/new.sh", Outcome: Fail}, Known},
		{Result{Test: "net/b.sh", Outcome: Skip}, Skip},
	} {
		r := test.r
		if read.Judge(&r); r.Outcome != test.want {
			t.Errorf("%+v: %s, want %s", test.r, r.Outcome, test.want)
		}
	}
	for _, bad := range []string{"", "ok 1", "<testsuites></testsuites>"} {
		if _, err := ReadJUnit("results.xml", strings.NewReader(bad)); err == nil {
			t.Errorf("%q is no baseline", bad)
		}
	}
}

func TestWriteTAP(t *testing.T) {
	var out strings.Builder
	for i, r := range []Result{
		{Outcome: Pass, Took: time.Second}, {Outcome: Fail}, {Outcome: Timeout}, {Outcome: Skip, Why: "no ss"}, {Outcome: Known},
	} {
		r.Test, r.Kernel = "net/a.sh", "k"
		if err := WriteTAP(&out, i+1, &r); err != nil {
			t.Fatal(err)
		}
	}
	const want = `ok 1 - net/a.sh on k # time=1000ms
not ok 2 - net/a.sh on k # time=0ms
not ok 3 - net/a.sh on k # time=0ms
ok 4 - net/a.sh on k # SKIP no ss
not ok 5 - net/a.sh on k # TODO fails on the baseline, too
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFind(t *testing.T) {
	selftests, own := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		selftests + "/net/Makefile":                  "TEST_PROGS := a.sh \\\n\tb.sh missing.sh\nTEST_PROGS += c.py\nTEST_PROGS_EXTENDED := lib.sh\n",
		selftests + "/net/settings":                  "timeout=3600\n",
		selftests + "/net/a.sh":                      "",
		selftests + "/net/b.sh":                      "",
		selftests + "/net/c.py":                      "",
		selftests + "/net/lib.sh":                    "",
		selftests + "/net/packetdrill/tcp_inq.pkt":   "",
		selftests + "/net/packetdrill/tcp_v6.pkt":    "// comment\n--ip_version=ipv6\n",
		selftests + "/net/packetdrill/ksft_runner.h": "",
		own + "/tcp/sack.pkt":                        "",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(selftests+"/net/c.py", 0o755); err != nil {
		t.Fatal(err)
	}
	const p = "net/packetdrill/"
	for suite, want := range map[string][]string{
		"net":                       {"net/a.sh", "net/b.sh", "net/c.py"},
		"net:b":                     {"net/b.sh"},
		"net:lib.sh":                {"net/lib.sh"},
		"packetdrill":               {p + "tcp_inq.pkt/ipv4", p + "tcp_inq.pkt/ipv6", p + "tcp_v6.pkt/ipv6"},
		"packetdrill:tcp_i":         {p + "tcp_inq.pkt/ipv4", p + "tcp_inq.pkt/ipv6"},
		"net/packetdrill:tcp_v6":    {p + "tcp_v6.pkt/ipv6"},
		own:                         {"tcp/sack.pkt/ipv4", "tcp/sack.pkt/ipv6"},
		own + "/tcp/sack.pkt":       {"sack.pkt/ipv4", "sack.pkt/ipv6"},
		"net/none":                  nil,
		"net:none":                  nil,
		"../etc":                    nil,
		"packetdrill:none":          nil,
		filepath.Join(own, "x.pkt"): nil,
	} {
		tests, err := Find(suite, selftests, "/bin/packetdrill")
		var names []string
		for _, test := range tests {
			names = append(names, test.Name)
			if test.Drill != strings.Contains(test.Name, ".pkt") {
				t.Errorf("%s: for packetdrill: %v", test.Name, test.Drill)
			}
		}
		if !slices.Equal(names, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %q, %v; want %q", suite, names, err, want)
		}
	}
	for collection, want := range map[string]bool{"net": true, "net/packetdrill": false, "net/none": false, "../selftests/net": false} {
		if needsBuild(selftests, collection) != want {
			t.Errorf("%s: needs a build: %v", collection, !want)
		}
	}
	tests, err := Find("net", selftests, "")
	if err != nil || tests[0].Limit != time.Hour || !slices.Equal(tests[0].Args, []string{"bash", "a.sh"}) || !slices.Equal(tests[2].Args, []string{"./c.py"}) {
		t.Errorf("%+v, %v", tests, err)
	}
}
