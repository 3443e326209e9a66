// SPDX-License-Identifier: Apache-2.0

package procstat

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]int{
		"12 (sh) S 7 12 12 0":      7,
		"12 (a) b (c)) R 8 12":     8,
		"12 (with\nnewline) Z 1 2": 1,
		"12 (cut":                  -1,
		"":                         -1,
		"12 () S":                  -1,
		"12 (x) S notanumber 3":    -1,
	} {
		p, ok := Parse(line)
		if !ok {
			p.Parent = -1
		}
		if p.Parent != want || p.CPUKnown {
			t.Errorf("%q: %+v, want the parent %d and no more", line, p, want)
		}
	}
	for state, want := range map[string]bool{"T": true, "t": false, "S": false} {
		if p, ok := Parse("1 (x) " + state + " 7"); !ok || p.Stopped != want {
			t.Errorf("state %s: %+v", state, p)
		}
	}
	// A line of a real process: utime 25, stime 17, starttime 4242.
	line := "1 (a b) c) S 7 1 1 0 -1 4194560 1 2 3 4 25 17 5 6 20 0 1 0 4242 1 2"
	want := Process{Name: "a b) c", Parent: 7, CPU: 420 * time.Millisecond, CPUKnown: true, Start: 4242}
	if p, ok := Parse(line); !ok || p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}

func TestBelow(t *testing.T) {
	all := map[int]Process{1: {}, 5: {Parent: 1}, 7: {Parent: 5}, 6: {Parent: 7}, 9: {Parent: 1}}
	if got := Below(all, 5); !slices.Equal(got, []int{6, 7}) {
		t.Errorf("below 5: %v", got)
	}
	if got := Below(all, 9); got != nil {
		t.Errorf("below 9: %v", got)
	}
}

// TestList reads this process from the real /proc.
func TestList(t *testing.T) {
	all, err := List(Root)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := all[os.Getpid()]
	if !ok || p.Parent != os.Getppid() || !p.CPUKnown || p.Start == 0 {
		t.Errorf("this process: %+v, %v", p, ok)
	}
	if !slices.Contains(Below(all, p.Parent), os.Getpid()) {
		t.Error("this process is not below its parent")
	}
	if _, err := List(t.TempDir() + "/none"); err == nil {
		t.Error("a directory that does not exist was listed")
	}
}
