// SPDX-License-Identifier: Apache-2.0

package exit

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct sigaction on the architectures that lklrun supports
// (arch/x86/include/uapi/asm/signal.h, include/uapi/asm-generic/signal.h in the kernel's
// source). The order of the fields differs between them, but a zero struct means SIG_DFL
// on all.
type sigaction struct {
	_ [4]uint64
}

// defaultAction sets the default action of sig, even if the Go runtime has a handler.
func defaultAction(sig syscall.Signal) error {
	var act sigaction
	const sigsetSize = 8 // _NSIG / 8
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, sigsetSize, 0, 0); errno != 0 {
		return fmt.Errorf("resetting %v: %w", sig, errno)
	}
	return nil
}
