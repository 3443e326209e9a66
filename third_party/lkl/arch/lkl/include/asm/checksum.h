/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CHECKSUM_H
#define _ASM_LKL_CHECKSUM_H

/* The inner loop is specific to the CPU; the rest is asm-generic. */
extern unsigned int do_csum(const unsigned char *buff, int len);
#define do_csum do_csum

#include <asm-generic/checksum.h>

#endif
