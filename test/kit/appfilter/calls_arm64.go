// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// allowedHere are the further calls on this architecture.
var allowedHere = []uint32{unix.SYS_FSTATAT}

// debianOld is empty: no such call exists here.
var debianOld []uint32
