/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_SYSCALL_H
#define _ASM_LKL_SYSCALL_H

#include <linux/types.h>
#include <uapi/linux/audit.h>

struct task_struct;

static inline int syscall_get_arch(struct task_struct *task)
{
#if defined(__x86_64__)
	return AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
	return AUDIT_ARCH_AARCH64;
#elif defined(__arm__)
	return AUDIT_ARCH_ARM;
#endif
}

typedef long (*lkl_syscall_fn)(long, long, long, long, long, long);
#endif
