// SPDX-License-Identifier: Apache-2.0

package exit

import (
	"errors"
	"fmt"
)

// Exit statuses of lklctl, and of lklrun unless it passes on its target's.
const (
	OK         = 0
	Failure    = 1 // understood, but failed
	Nothing    = 1 // of lklctl: no data, or no match
	Usage      = 2 // not understood: nothing was done
	NoInstance = 3 // of lklctl: none runs, or none with that name
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
		return OK
	case errors.As(err, &own):
		return own.Status
	case errors.As(err, &usage):
		return Usage
	}
	return Failure
}
