// SPDX-License-Identifier: Apache-2.0

// Package cli is the common user interface of the two commands: exit statuses, one-line
// error messages, tables and JSON.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Exit statuses of lklctl, and of lklrun unless it passes on its target's.
const (
	ExitOK         = 0
	ExitFailure    = 1 // understood, but failed
	ExitNothing    = 1 // of lklctl: no data, or no match
	ExitUsage      = 2 // not understood: nothing was done
	ExitNoInstance = 3 // of lklctl: none runs, or none with that name
)

// UsageError is an error in the command line.
type UsageError struct{ Err error }

// Error returns the message of the error inside.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError; its message names the wrong word and the remedy.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// StatusError is an error with an exit status.
type StatusError struct {
	Err    error
	Status int
}

// Error returns the message of the error inside.
func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *StatusError) Unwrap() error { return e.Err }

// Status returns the exit status for err.
func Status(err error) int {
	var usage *UsageError
	var own *StatusError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.Status
	case errors.As(err, &usage):
		return ExitUsage
	}
	return ExitFailure
}

// Fail prints err in one line on w, after the program's name, and returns its exit
// status.
func Fail(w io.Writer, program string, err error) int {
	if err != nil {
		fmt.Fprintf(w, "%s: %s\n", program, OneLine(err.Error()))
	}
	return Status(err)
}

// OneLine joins the lines of a message, such as that of errors.Join, and makes it Plain.
func OneLine(s string) string {
	return Plain(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), "; "))
}

// Plain replaces control characters by question marks, because a terminal would interpret
// them: a name or a message may come from another machine, which is not trusted.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// Note prints a line on w that is not an error, for example that a table is empty.
func Note(w io.Writer, program, format string, args ...any) {
	fmt.Fprintf(w, "%s: %s\n", program, Plain(fmt.Sprintf(format, args...)))
}

// Output is the format of a command's output. It is a pflag.Value.
type Output string

// The output formats.
const (
	OutputTable Output = "table"
	OutputJSON  Output = "json"
	OutputProm  Output = "prom" // of lklctl counters only
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
	return fmt.Errorf("want table or json")
}

// WriteJSON writes v as one indented document and a newline. It does not escape HTML
// characters, which are common in command lines.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
