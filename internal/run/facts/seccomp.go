// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// seccomp calls seccomp(2) for operations whose argument is one number.
func seccomp(op uintptr, arg *uint32) error {
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, op, 0, uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}
