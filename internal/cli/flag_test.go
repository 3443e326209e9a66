// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagError(t *testing.T) {
	f := pflag.NewFlagSet("prog", pflag.ContinueOnError)
	f.Int("spin", 0, "")
	f.Uint("count", 0, "")
	f.Uint64("packets", 0, "")
	f.Duration("limit", 0, "")
	f.BoolP("verbose", "v", false, "")
	f.Var(new(Output), "output", "")
	for word, want := range map[string]string{
		"--spin=abc":                  `--spin "abc"; expected a whole number`,
		"--spin=1.5":                  `--spin "1.5"; expected a whole number`,
		"--spin=99999999999999999999": `--spin "99999999999999999999"; expected a whole number`,
		"--spin=":                     `--spin ""; expected a whole number`,
		"--count=-1":                  `--count "-1"; expected a whole number, 0 or more`,
		"--packets=x":                 `--packets "x"; expected a whole number, 0 or more`,
		"--limit=soon":                `--limit "soon"; expected a time such as 500ms, 10s or 2m`,
		"-v=perhaps":                  `--verbose "perhaps"; expected true or false`,
		"--output=xml":                `--output "xml"; expected table or json`,
		"--none":                      "unknown flag: --none",
		"--spni":                      "unknown flag: --spni; did you mean --spin?",
	} {
		if err := f.Parse([]string{word}); err == nil || FlagError(f, err).Error() != want {
			t.Errorf("%s: %v, want %s", word, FlagError(f, err), want)
		}
	}
}
