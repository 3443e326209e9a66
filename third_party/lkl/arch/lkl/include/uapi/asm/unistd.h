/* SPDX-License-Identifier: GPL-2.0-only */
/* The numbers are in the host's table; generated/asm/syscall_table.h has it. */
#include <asm/unistd_host.h>
