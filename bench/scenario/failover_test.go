// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"testing"
	"time"
)

func TestBack(t *testing.T) {
	const full = 200e6 / 8 / 100 // bytes per tick
	ticks := make([]float64, 100)
	for i := range ticks {
		switch {
		case i < 30 || i >= 55:
			ticks[i] = full
		case i == 40:
			ticks[i] = 3 * full // more than one path can carry
		}
	}
	for _, c := range []struct{ from, want time.Duration }{
		{305 * time.Millisecond, 245 * time.Millisecond},
		{600 * time.Millisecond, 10 * time.Millisecond},
		{950 * time.Millisecond, failoverNever},
	} {
		if got := back(ticks, c.from, 0.8*200e6/8); got != c.want {
			t.Errorf("cut at %v: back after %v, expected %v", c.from, got, c.want)
		}
	}
}

func TestCourse(t *testing.T) {
	begin, ticks, err := course("2.5 0 7")
	if err != nil || begin != 2500*time.Millisecond || len(ticks) != 2 || ticks[1] != 7 {
		t.Errorf("%v %v %v", begin, ticks, err)
	}
	for _, line := range []string{"", "2.5", "2.5 x"} {
		if _, _, err := course(line); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}
