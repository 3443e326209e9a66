// SPDX-License-Identifier: Apache-2.0

package exit

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct sigaction on the architectures lklrun is
// built for (arch/x86/include/uapi/asm/signal.h, include/uapi/asm-generic/signal.h
// in the kernel's source); all zero it means SIG_DFL on each, whatever the order
// of its fields.
type sigaction struct {
	_ [4]uint64
}

// defaultAction gives sig its default action, also where the Go runtime keeps a
// handler of its own.
func defaultAction(sig syscall.Signal) error {
	var act sigaction
	const sigsetSize = 8 // _NSIG / 8
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, sigsetSize, 0, 0); errno != 0 {
		return fmt.Errorf("resetting %v: %w", sig, errno)
	}
	return nil
}
