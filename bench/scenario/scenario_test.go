// SPDX-License-Identifier: Apache-2.0

package scenario

import "testing"

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Measure
		want int
	}{
		{"as the form has it", Measure{}, 5},
		{"once", Measure{Once: true, Times: 3}, 1},
		{"fewer", Measure{Rounds: 3}, 3},
		{"never more than the form", Measure{Rounds: 9}, 5},
		{"more often", Measure{Times: 3}, 15},
	} {
		if got := c.m.Turns(5); got != c.want {
			t.Errorf("%s: %d turns, want %d", c.name, got, c.want)
		}
	}
}
