// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/base/suggest"
)

// expected describes the valid values of flags that pflag parses itself. Other flags have
// their own parsers and messages.
var expected = map[string]string{
	"int":      "a whole number",
	"uint":     "a whole number, 0 or more",
	"uint64":   "a whole number, 0 or more",
	"duration": "a time such as 500ms, 10s or 2m",
	"bool":     "true or false",
}

// FlagError improves the error for a flag. For an invalid value, it names the expected
// form instead of the parser. For an unknown flag, it suggests a similar flag. Other
// errors are returned unchanged.
func FlagError(flags *pflag.FlagSet, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedName() == "p" && flags.Lookup("publish") != nil:
		return errors.New("unknown flag -p; did you mean --publish?")
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		name := "--" + unknown.GetSpecifiedName()
		if w := suggest.Word(name, flagNames(flags)); w != "" {
			return fmt.Errorf("unknown flag: %s; did you mean %s?", name, w)
		}
		return err
	case !errors.As(err, &invalid):
		return err
	}
	name, value := invalid.GetFlag().Name, invalid.GetValue()
	if want, ok := expected[invalid.GetFlag().Value.Type()]; ok {
		return fmt.Errorf("--%s %q; expected %s", name, value, want)
	}
	if cause := invalid.Unwrap().Error(); strings.HasPrefix(cause, "expected ") { // from one of our flag types
		return fmt.Errorf("--%s %q; %s", name, value, cause)
	}
	return err
}

func flagNames(flags *pflag.FlagSet) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}
