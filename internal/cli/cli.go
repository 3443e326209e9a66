// SPDX-License-Identifier: Apache-2.0

// Package cli is what the two commands share towards the person who types:
// exit statuses, the one line that tells an error, tables and JSON.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Exit statuses of lklctl, and of lklrun where it does not pass on its target's.
const (
	ExitOK         = 0
	ExitFailure    = 1 // understood, but could not be done
	ExitNothing    = 1 // of lklctl: nothing is there, or matched
	ExitUsage      = 2 // not understood: nothing was done
	ExitNoInstance = 3 // of lklctl: none runs, or none of that name
)

// UsageError is an error in what was typed.
type UsageError struct{ Err error }

// Error returns the message of the error inside.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes an error in what was typed; the message names the word and the
// remedy.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// StatusError is an error with an exit status of its own.
type StatusError struct {
	Err    error
	Status int
}

// Error returns the message of the error inside.
func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *StatusError) Unwrap() error { return e.Err }

// Status returns the exit status that err stands for.
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

// Fail tells err in one line on w, under the program's name, and returns its
// exit status.
func Fail(w io.Writer, program string, err error) int {
	if err != nil {
		fmt.Fprintf(w, "%s: %s\n", program, OneLine(err.Error()))
	}
	return Status(err)
}

// OneLine joins the lines of a message, as errors.Join and others make them, and
// makes it Plain.
func OneLine(s string) string {
	return Plain(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), "; "))
}

// Plain is a text without what a terminal would take for an order: a name or a
// message may come from another machine, which is not trusted. Each such character
// is a question mark.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// Note tells a line on w that is no error, such as that a table has no rows.
func Note(w io.Writer, program, format string, args ...any) {
	fmt.Fprintf(w, "%s: %s\n", program, Plain(fmt.Sprintf(format, args...)))
}

// Output is the form of what a command prints: it is a pflag.Value.
type Output string

// The forms of output.
const (
	OutputTable Output = "table"
	OutputJSON  Output = "json"
	OutputProm  Output = "prom" // of lklctl counters alone
)

// String returns the form's name.
func (o *Output) String() string { return string(*o) }

// Type names the kind of value in help texts.
func (o *Output) Type() string { return "table|json" }

// Set checks and takes the form's name.
func (o *Output) Set(s string) error {
	switch v := Output(s); v {
	case OutputTable, OutputJSON:
		*o = v
		return nil
	}
	return fmt.Errorf("want table or json")
}

// WriteJSON writes v for programs: one indented document and a newline. HTML
// characters stay as they are: command lines hold many of them.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
