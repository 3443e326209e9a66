// SPDX-License-Identifier: Apache-2.0

package text

import (
	"os/exec"
	"strings"
	"testing"
)

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
