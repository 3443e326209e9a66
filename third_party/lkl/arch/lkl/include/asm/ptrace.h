/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_PTRACE_H
#define _ASM_LKL_PTRACE_H

#include <uapi/asm/ptrace.h>

#define user_mode(regs)			((regs)->user)
#define profile_pc(regs)		0UL
#define instruction_pointer(regs)	0UL
#define user_stack_pointer(regs)	0UL
#define current_pt_regs()		(&current->thread.regs)
#define task_pt_regs(t)			(&(t)->thread.regs)
#define force_successful_syscall_return() do { } while (0)

#endif
