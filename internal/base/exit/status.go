// SPDX-License-Identifier: Apache-2.0

package exit

import (
	"errors"
	"fmt"
)

// Exit statuses of lklctl and lklrun. After a run, lklrun usually returns its
// target's exit status instead.
const (
	OK         = 0
	Failure    = 1 // the command line was valid, but the command failed
	Nothing    = 1 // lklctl only: no data, or no match
	Usage      = 2 // the command line was invalid, and nothing was done
	NoInstance = 3 // lklctl only: no instance runs, or none has that name
)

// UsageError is an error that the user can fix, and before which nothing was done.
type UsageError struct{ Err error }

// Error returns the message of the wrapped error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *UsageError) Unwrap() error { return e.Err }

// ExitStatus returns the status of the wrapped error, or else Usage.
func (e *UsageError) ExitStatus() int { return StatusOr(e.Err, Usage) }

// Usagef formats a UsageError. Its message names the invalid word and the
// remedy.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// StatusError is an error with an exit status.
type StatusError struct {
	Err    error
	Status int
}

// Error returns the message of the wrapped error.
func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *StatusError) Unwrap() error { return e.Err }

// ExitStatus returns the status.
func (e *StatusError) ExitStatus() int { return e.Status }

// Status returns the exit status for err.
func Status(err error) int { return StatusOr(err, Failure) }

// StatusOr returns the exit status for err. An error with the method ExitStatus determines it;
// without one, the status is other.
func StatusOr(err error, other int) int {
	var own interface{ ExitStatus() int }
	switch {
	case err == nil:
		return OK
	case errors.As(err, &own):
		return own.ExitStatus()
	}
	return other
}
