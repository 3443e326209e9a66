/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CHECKSUM_H
#define _ASM_LKL_CHECKSUM_H

/* The CPU's own inner loop; the rest is asm-generic. */
extern unsigned int do_csum(const unsigned char *buff, int len);
#define do_csum do_csum

#include <asm-generic/checksum.h>

#endif
