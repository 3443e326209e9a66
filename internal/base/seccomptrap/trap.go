// SPDX-License-Identifier: Apache-2.0

// Package seccomptrap makes system calls that a seccomp filter traps fail with ENOSYS, as on a
// kernel without them. Android runs each app under a filter that traps the calls which its
// C library does not make. SIGSYS, which the process then receives, would end it. The
// standard library and ours have code for older kernels, which handles ENOSYS.
//
// Importing the package installs the handler. csrc/base/trap.c is its counterpart in
// lklhost.
package seccomptrap

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct sigaction (include/uapi/asm-generic/signal.h in the
// kernel's source; x86 and arm have the same order).
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// runtimeHandler is the Go runtime's handler of SIGSYS. It handles signals that another
// process sends.
var runtimeHandler uintptr //nolint:unused // the assembly code jumps to it

// handler handles SIGSYS. Go code must not call it; address uses it.
func handler()

var _ = handler

// address returns the address of handler.
func address() uintptr

func init() {
	const sigsetSize = 8 // _NSIG / 8
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || mode != unix.SECCOMP_MODE_FILTER {
		return // nothing is trapped
	}
	var act sigaction
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSYS), 0, uintptr(unsafe.Pointer(&act)), sigsetSize, 0, 0); errno != 0 {
		return
	}
	runtimeHandler, act.handler = act.handler, address()
	// The runtime's flags remain. An error leaves its handler.
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSYS), uintptr(unsafe.Pointer(&act)), 0, sigsetSize, 0, 0)
}
