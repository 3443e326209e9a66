// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/diag/drill"
)

// A row of blocks has one column per interval. A column shows the height of a
// rate, a dot for a rate of 0, or a blank if the flow did not exist.
func TestSpark(t *testing.T) {
	r := func(f float64) *float64 { return &f }
	line := &drill.Timeline{
		Seconds: 10, Times: []float64{0, 2.5, 5, 7.5, 10},
		Steps: []drill.Done{{Mark: "a", At: 5}, {Mark: "b", At: 10}},
	}
	f := &drill.Flow{RxRates: []*float64{nil, r(100), r(0), nil, r(50)}, TxRates: make([]*float64, 5)}
	row, peak := spark(line, f, true, 0)
	if peak != 100 || len([]rune(row)) != timelineColumns {
		t.Errorf("%q up to %v", row, peak)
	}
	for n, want := range map[int]rune{0: '█', 10: '█', 20: '.', 30: ' ', 50: '▄', 54: '▄'} {
		if got := []rune(row)[n]; got != want {
			t.Errorf("column %d is %q in %q", n, got, row)
		}
	}
	for _, block := range row {
		if !strings.ContainsRune("▄█. ▆▇", block) {
			t.Errorf("a %q in %q", block, row)
		}
	}
	if row, peak := spark(line, f, false, 7); peak != 0 || strings.TrimSpace(row) != "" {
		t.Errorf("of what never was: %q, %v", row, peak)
	}
	if got := marks(line); got != strings.Repeat(" ", 27)+"a" {
		t.Errorf("marks %q", got)
	}
}
