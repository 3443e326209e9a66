// SPDX-License-Identifier: Apache-2.0

package text

import (
	"os/exec"
	"strings"
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

func TestQuote(t *testing.T) {
	for want, command := range map[string][]string{
		`sh -c 'curl a & curl b; wait'`:          {"sh", "-c", "curl a & curl b; wait"},
		`python3 -c $'import x\nprint(\'\\1\')'`: {"python3", "-c", "import x\nprint('\\1')"},
		`echo '' 'it'\''s' $'\033[0m'`:           {"echo", "", "it's", "\033[0m"},
		"curl -s http://x.example/%20 größe":     {"curl", "-s", "http://x.example/%20", "größe"},
	} {
		if got := Quote(command); got != want {
			t.Errorf("%q is written %s, want %s", command, got, want)
			continue
		}
		// Check that a shell splits the quoted text into the same
		// words.
		out, err := exec.Command("bash", "-c", `printf '%s\0' `+want).Output()
		if err != nil || string(out) != strings.Join(command, "\x00")+"\x00" {
			t.Errorf("a shell reads %s as %q, %v", want, out, err)
		}
	}
}
