// SPDX-License-Identifier: Apache-2.0

// Package errno finds the error number in an error.
package errno

import (
	"errors"
	"syscall"
)

// Errno returns the error number that err wraps, without the operation and the
// path around it. If err wraps none, Errno returns err.
func Errno(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}
