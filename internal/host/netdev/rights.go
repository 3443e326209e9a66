// SPDX-License-Identifier: Apache-2.0

package netdev

import "fmt"

// RightsError reports that only a right is missing for a run: another user could start
// the same run. A check that returns it has examined everything else.
type RightsError struct{ Err error }

// Error names the right and the remedy.
func (e *RightsError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *RightsError) Unwrap() error { return e.Err }

func rightsErrorf(format string, args ...any) error {
	return &RightsError{fmt.Errorf(format, args...)}
}
