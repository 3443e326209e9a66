// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The kernel calls it with the signal in R0, the siginfo in R1, and the ucontext in R2.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVW 8(R1), R3 // si_code
	CMP  $1, R3    // SYS_SECCOMP
	BNE  other
	MOVW $-38, R3
	MOVW R3, 32(R2) // uc_mcontext.arm_r0: ENOSYS
	RET

other:
	MOVW ·runtimeHandler(SB), R3
	B    (R3)

TEXT ·address(SB), NOSPLIT, $0-4
	MOVW $·handler(SB), R0
	MOVW R0, ret+0(FP)
	RET
