// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The kernel calls it with the signal in R0, the siginfo in R1, and the ucontext in R2.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVW 8(R1), R3 // si_code
	CMPW $1, R3    // SYS_SECCOMP
	BNE  other
	MOVD $-38, R3
	MOVD R3, 184(R2) // uc_mcontext.regs[0]: ENOSYS
	RET

other:
	MOVD ·runtimeHandler(SB), R3
	B    (R3)

TEXT ·address(SB), NOSPLIT, $0-8
	MOVD $·handler(SB), R0
	MOVD R0, ret+0(FP)
	RET
