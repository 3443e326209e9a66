/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _UAPI_ASM_LKL_PTRACE_H
#define _UAPI_ASM_LKL_PTRACE_H
/* Registers of "user mode" stay with the host; what is left says where the
 * kernel was entered from. */
struct pt_regs {
	unsigned long user;
};
#endif
