// SPDX-License-Identifier: Apache-2.0

package text

import (
	"testing"
	"time"
)

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 192 * time.Second: "3m12s", 125 * time.Minute: "2h5m", 220 * time.Hour: "9d4h",
	} {
		if got := ShortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestSecondFinding12Plain checks that no character can change how a line is shown: finding 12 of
// the second review.
func TestSecondFinding12Plain(t *testing.T) {
	for _, r := range "\x1b\u0085\u202e\u2066\u200f\u2028\u2029\ufeff\U000e0001" {
		if got := Plain("a" + string(r) + "b"); got != "a?b" {
			t.Errorf("%U: %q", r, got)
		}
	}
	if got := Plain("a\tü\n日本"); got != "a\tü\n日本" {
		t.Errorf("%q", got)
	}
}
