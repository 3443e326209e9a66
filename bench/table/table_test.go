// SPDX-License-Identifier: Apache-2.0

package table

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
)

func key(dir, variant string) Key {
	return Key{Scenario: "bulk", What: "bulk", Params: Params{"size": "64", "dir": dir}, Placement: "one-cpu", Variant: variant}
}

// example returns a run of two variants. The host has an outlier.
func example() *Set {
	s := New()
	s.Info.Commit, s.Info.Kernel, s.Info.Date = "abc", "Linux 6.18", "2026-01-02T03:04:05Z"
	for _, v := range []float64{10, 11, 90} {
		s.Add(key("send", "host"), Sample{"Gbit/s": v, "cpu-s/GB": 1})
	}
	for _, v := range []float64{16, 17, 18} {
		s.Add(key("send", "library"), Sample{"Gbit/s": v, "cpu-s/GB": 1.5})
	}
	s.Add(key("recv", "library"), Sample{"Gbit/s": 5})
	s.Profiles = []Profile{{Key: key("send", "library"), Sample: Sample{"cpu-s/GB": 1.5}, Unit: "cpu-s/GB", Parts: []Part{{"copy", 1}, {"other", 0.5}}, Idle: 0.25, Count: 100}}
	return s
}

func TestMedian(t *testing.T) {
	s := example()
	if m, ok := s.Median(key("send", "host"), "Gbit/s"); !ok || m != 11 {
		t.Errorf("median %v, %v, want 11", m, ok)
	}
	if lo, hi := s.Quartiles(key("send", "library"), "Gbit/s"); lo != 16.5 || hi != 17.5 {
		t.Errorf("quartiles %v, %v, want 16.5, 17.5", lo, hi)
	}
	if _, ok := s.Median(key("send", "preload"), "Gbit/s"); ok {
		t.Error("a median of nothing")
	}
	if _, ok := s.Ratio(key("recv", "library"), "host", "Gbit/s"); ok {
		t.Error("a ratio to nothing")
	}
	if got, want := key("send", "host").String(), "bulk/bulk/dir=send/size=64/placement=one-cpu/variant=host"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
}

func TestJudge(t *testing.T) {
	lib, host := key("send", "library"), key("send", "host")
	tests := []struct {
		target Target
		want   string
	}{
		{Target{Unit: "Gbit/s", Of: lib, Base: host, AtLeast: 1.5}, Met}, // 17/11; the mean would differ
		{Target{Unit: "Gbit/s", Of: lib, Base: host, AtLeast: 1.6}, Missed},
		{Target{Unit: "cpu-s/GB", Of: lib, Base: host, AtMost: 1.5}, Met},
		{Target{Unit: "cpu-s/GB", Of: lib, Base: host, AtMost: 1.4}, Missed},
		{Target{Unit: "Gbit/s", Of: lib, AtLeast: 17}, Met},
		{Target{Unit: "Gbit/s", Of: lib, Base: host, Diff: true, AtMost: 5}, Missed},
		{Target{Unit: "Gbit/s", Of: lib, Base: host, Diff: true, AtMost: 6}, Met},
		{Target{Unit: "Gbit/s", Of: key("recv", "library"), Base: key("recv", "host"), AtLeast: 1}, Unknown},
		{Target{Unit: "µs", Of: lib, AtMost: 1}, Unknown},
	}
	for _, tt := range tests {
		if _, got := example().Judge(tt.target); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.target.Bound(), got, tt.want)
		}
	}
}

func TestJSON(t *testing.T) {
	var b, again bytes.Buffer
	if err := example().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	s, err := ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteJSON(&again); err != nil {
		t.Fatal(err)
	}
	if again.String() != text {
		t.Errorf("what was read again is\n%s, was\n%s", again.String(), text)
	}
	if _, err := ReadJSON(strings.NewReader("{")); err == nil {
		t.Error("half a file was read")
	}
}

func TestProfile(t *testing.T) {
	s := example()
	p := s.Profile(key("send", "library"))
	if p == nil || p.Part("copy") != 1 || p.Part("none") != 0 || s.Profile(key("send", "host")) != nil {
		t.Errorf("%+v", p)
	}
	if !s.HasCPU(key("send", "host")) || s.HasCPU(key("recv", "library")) {
		t.Error("CPU time is where there is none, or the other way round")
	}
	other := example()
	other.Info = s.Info
	joined := New()
	joined.Info = s.Info
	if err := joined.Join(other); err != nil || joined.Profile(key("send", "library")) == nil {
		t.Errorf("joined without its profile (%v)", err)
	}
}

func TestBenchstat(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteBenchstat(&b); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for r := benchfmt.NewReader(&b, "x"); r.Scan(); {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			lines++
			if rec.GetConfig("commit") != "abc" {
				t.Errorf("%s: no commit", rec.Name)
			}
			if v, ok := rec.Value("Gbit/s"); !ok || v <= 0 {
				t.Errorf("%s: %v Gbit/s", rec.Name, v)
			}
			if !strings.Contains(string(rec.Name), "/variant=") {
				t.Errorf("%s: no variant", rec.Name)
			}
		case *benchfmt.SyntaxError:
			t.Error(rec)
		}
	}
	if lines != 7 {
		t.Errorf("%d results, want 7", lines)
	}
}

func TestCompare(t *testing.T) {
	record := func(s *Set) *bytes.Buffer {
		var b bytes.Buffer
		if err := s.WriteRecord(&b); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	falls, compared, err := example().Compare(record(example()))
	if err != nil || compared != 2 || len(falls) != 0 {
		t.Errorf("itself: %v, %d, %v", falls, compared, err)
	}
	worse := example()
	for range 4 {
		worse.Add(key("send", "library"), Sample{"Gbit/s": 14, "cpu-s/GB": 1.9})
	}
	falls, _, err = worse.Compare(record(example()))
	if err != nil || len(falls) != 2 { // 14/17, and 1.5/1.9
		t.Errorf("worse: %v, %v", falls, err)
	}
	if falls, _, _ := example().Compare(record(worse)); len(falls) != 0 {
		t.Errorf("better: %v", falls)
	}
}

func TestJoin(t *testing.T) {
	run := func(commit, scenario string) *Set {
		s := New()
		s.Info = Info{Commit: commit, Date: "2026-01-0" + commit, Seconds: map[string]float64{scenario: 3}}
		s.Add(Key{Scenario: scenario, What: "x", Variant: "host"}, Sample{"ns": 7})
		return s
	}
	s := run("2", "rr")
	if err := s.Join(run("2", "bulk")); err != nil || len(s.Keys("bulk")) != 1 || s.Info.Seconds["bulk"] != 3 || s.Info.Seconds["rr"] != 3 {
		t.Errorf("joined: %v, %+v, %v", s.Keys(""), s.Info, err)
	}
	if err := s.Join(run("2", "rr")); err == nil || len(s.Keys("")) != 2 {
		t.Errorf("the same scenario: %v, %v", s.Keys(""), err)
	}
	kernel := run("2", "apps")
	kernel.Info.Kernel = "another"
	if err := s.Join(kernel); err == nil || len(s.Keys("")) != 2 {
		t.Errorf("another kernel: %v, %v", s.Keys(""), err)
	}
	// Join adds missing results of another commit, and records the commit.
	older := run("1", "rr")
	older.Add(Key{Scenario: "apps", What: "x", Variant: "host"}, Sample{"ns": 9})
	older.Info.Seconds["apps"] = 4
	older.Notes = []string{"rr/x: old", "profile of apps/x: new"}
	older.Profiles = []Profile{{Key: Key{Scenario: "rr"}}, {Key: Key{Scenario: "apps"}}}
	if err := s.Join(older); err != nil || s.Info.Seconds["rr"] != 3 || s.Info.Seconds["apps"] != 4 || s.Turns("rr") != 1 || s.Turns("apps") != 1 ||
		s.Info.Date != "2026-01-02" || len(s.Notes) != 1 || len(s.Profiles) != 1 {
		t.Errorf("joined: %v, %+v, %v, %v", s.Keys(""), s.Info, s.Notes, err)
	}
	if c := s.Info.Commits; len(c) != 1 || c["apps"] != "1" {
		t.Errorf("commits: %v", c)
	}
}
