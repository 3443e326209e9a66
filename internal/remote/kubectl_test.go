// SPDX-License-Identifier: Apache-2.0

package remote

import "testing"

// The line of kubectl counts only as the last one, and is not passed on.
func TestKubectlErrors(t *testing.T) {
	for _, c := range []struct {
		writes   []string
		reported bool
		last, to string
	}{
		{[]string{"command terminated with exit code 7\n"}, true, "", ""},
		{[]string{"lklrun: no\ncommand termin", "ated with exit code 1\n"}, true, "lklrun: no", "lklrun: no\n"},
		{[]string{"lklrun: no\n", "command terminated with exit code 1"}, true, "lklrun: no", "lklrun: no\n"},
		{[]string{"command terminated with exit code 1\n", "error: lost\n"}, false, "error: lost", "error: lost\n"},
		{[]string{"error: lo", "st"}, false, "error: lost", "error: lost"},
		{nil, false, "", ""},
	} {
		var to Head
		k := &kubectlErrors{to: &to}
		for _, w := range c.writes {
			if n, err := k.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%q: wrote %d, %v", w, n, err)
			}
		}
		if reported, last := k.end(); reported != c.reported || last != c.last || to.String() != c.to {
			t.Errorf("%q: %v, %q, passed on %q", c.writes, reported, last, to.String())
		}
	}
}
