// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

// allowedHere are the further calls on this architecture.
var allowedHere = []uint32{
	unix.SYS_NEWFSTATAT, unix.SYS_ARCH_PRCTL, unix.SYS_OPEN, unix.SYS_GETDENTS, unix.SYS_VFORK,
}

// debianOld are the calls of this architecture that glibc makes before main().
var debianOld = []uint32{unix.SYS_ACCESS}
