/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _UAPI_ASM_LKL_PTRACE_H
#define _UAPI_ASM_LKL_PTRACE_H
/*
 * The host keeps the registers of "user mode"; this only says where the kernel
 * was entered from.
 */
struct pt_regs {
	unsigned long user;
};
#endif
