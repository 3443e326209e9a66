// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The kernel calls it with the signal in DI, the siginfo in SI, and the ucontext in DX.
TEXT ·handler(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	CMPL 8(SI), $1 // si_code: SYS_SECCOMP
	JNE  other
	MOVQ $-38, 144(DX) // uc_mcontext.rax: ENOSYS
	RET

other:
	MOVQ ·runtimeHandler(SB), AX
	JMP  AX

TEXT ·address(SB), NOSPLIT, $0-8
	MOVQ $·handler(SB), AX
	MOVQ AX, ret+0(FP)
	RET
