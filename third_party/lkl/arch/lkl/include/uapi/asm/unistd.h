/* SPDX-License-Identifier: GPL-2.0-only */
/* The numbers are in the host's table; generated/asm/syscall_table.h has it. */
#ifdef __x86_64__
#include <asm/unistd_64.h>
#else
#include <asm-generic/unistd.h>
#endif
