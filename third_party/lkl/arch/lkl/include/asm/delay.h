/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_DELAY_H
#define _ASM_LKL_DELAY_H

extern void __ndelay(unsigned long ns);
extern void __delay(unsigned long ns);

#define ndelay(n)	__ndelay(n)
#define udelay(n)	__ndelay((n) * 1000UL)
#define __udelay(n)	__ndelay((n) * 1000UL)

#endif
