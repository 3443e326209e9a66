// SPDX-License-Identifier: Apache-2.0

// Package errno finds the error number in an error.
package errno

import (
	"errors"
	"syscall"
)

// Of returns the error number that err wraps, without the operation and the
// path around it. If err wraps none, Of returns err.
func Of(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}
