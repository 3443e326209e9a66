// SPDX-License-Identifier: Apache-2.0

package klog

import (
	"encoding/json"
	"testing"
	"time"
)

func TestRecord(t *testing.T) {
	start := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	r, err := parseRecord("30,7,1500000,-;tap \\xe2\\x82\\xac a\\x0ab \\x\n SUBSYSTEM=net\n", clock{start})
	if err != nil || r.Level != 6 || *r.Sequence != 7 || *r.Uptime != 1.5 || !r.Time.Equal(start.Add(1500*time.Millisecond)) || r.Text != "tap € a\nb \\x" {
		t.Errorf("%+v, %v", r, err)
	}
	for want, r := range map[string]Record{
		`{"time":"2026-11-22T06:00:01.5Z","uptime_s":1.5,"sequence":7,"text":"x","level":"emerg"}`: {Time: r.Time, Uptime: r.Uptime, Sequence: r.Sequence, Text: "x"},
		`{"text":"y"}`: {Level: Unknown, Text: "y"},
	} {
		if b, err := json.Marshal(r); err != nil || string(b) != want {
			t.Errorf("%s, %v; want %s", b, err, want)
		}
	}
	if r, err := parseRecord("6,1,2;z", clock{}); err != nil || r.Time != nil {
		t.Errorf("without a clock: %+v, %v", r, err)
	}
	for _, text := range []string{"", "x", "6,1;x", "a,1,2,-;x", "6,-1,2;x"} {
		if r, err := parseRecord(text, clock{}); err == nil {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}

func TestLevel(t *testing.T) {
	for s, want := range map[string]Level{"emerg": 0, "warn": 4, "warning": 4, "7": 7, "debug": 7, "err": 3} {
		if l, err := ParseLevel(s); err != nil || l != want {
			t.Errorf("%s: %v, %v", s, l, err)
		}
	}
	if _, err := ParseLevel("8"); err == nil || Unknown.String() != "" {
		t.Error("there is no level 8")
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("30,7,1500000,-;tap \\xe2 a\\x0ab \\x\n SUBSYSTEM=net\n")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseRecord(text, clock{time.Now()}); err == nil {
			if _, err := json.Marshal(r); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
