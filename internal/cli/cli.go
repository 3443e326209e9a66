// SPDX-License-Identifier: Apache-2.0

// Package cli is the common user interface of the two commands: error messages, tables
// and JSON, help and manual pages.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// Fail prints err in one line on w, after the program's name, and returns its exit
// status.
func Fail(w io.Writer, program string, err error) int {
	if err != nil {
		fmt.Fprintf(w, "%s: %s\n", program, text.OneLine(err.Error()))
	}
	return exit.Status(err)
}

// Note prints a line on w that is not an error, for example that a table is empty.
func Note(w io.Writer, program, format string, args ...any) {
	fmt.Fprintf(w, "%s: %s\n", program, text.Plain(fmt.Sprintf(format, args...)))
}

// Output is the format of a command's output. It is a pflag.Value.
type Output string

// The output formats.
const (
	OutputTable Output = "table"
	OutputJSON  Output = "json"
	OutputProm  Output = "prom" // only for lklctl counters
)

// String returns the name of the format.
func (o *Output) String() string { return string(*o) }

// Type describes the value in help texts.
func (o *Output) Type() string { return "table|json" }

// Set checks and sets the format.
func (o *Output) Set(s string) error {
	switch v := Output(s); v {
	case OutputTable, OutputJSON:
		*o = v
		return nil
	}
	return fmt.Errorf("expected table or json")
}

// OutputFlags adds the flag -o for the format o, and --json as a short form. usage
// describes -o.
func OutputFlags(f *pflag.FlagSet, o pflag.Value, usage string) {
	f.VarP(o, "output", "o", usage)
	f.Var(jsonFlag{o}, "json", "same as -o json")
	f.Lookup("json").NoOptDefVal = "true"
}

// jsonFlag is the flag --json for a format.
type jsonFlag struct{ format pflag.Value }

// IsBoolFlag tells pflag that the flag takes no value.
func (j jsonFlag) IsBoolFlag() bool { return true }

// Type describes the value in help texts.
func (j jsonFlag) Type() string { return "bool" }

// String returns the value that the help shows as the default: none.
func (j jsonFlag) String() string { return "false" }

// Set sets the format.
func (j jsonFlag) Set(s string) error {
	on, err := strconv.ParseBool(s)
	switch {
	case err != nil:
		return fmt.Errorf("expected true or false")
	case on:
		return j.format.Set(string(OutputJSON))
	case j.format.String() == string(OutputJSON):
		return j.format.Set(string(OutputTable))
	}
	return nil
}

// WriteJSON writes v as one indented document and a newline. It does not escape HTML
// characters, which are common in command lines.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Release is the version, or the commit of a build from source. The linker sets it: -X
// github.com/lklrun/lklrun/internal/cli.Release=1.2.3.
var Release = "development build"

// Version returns the output of a program's --version.
func Version(program string) string {
	return fmt.Sprintf("%s %s, control protocol %d", program, Release, ctlproto.CTL_VERSION)
}
