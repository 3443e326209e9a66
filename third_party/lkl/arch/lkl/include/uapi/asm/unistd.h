/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The numbers come from the host's table, by way of
 * generated/asm/syscall_table.h.
 */
#include <asm/unistd_host.h>
