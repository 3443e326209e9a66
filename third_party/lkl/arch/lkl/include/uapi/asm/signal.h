/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _UAPI_ASM_LKL_SIGNAL_H
#define _UAPI_ASM_LKL_SIGNAL_H
/* These hosts have sa_restorer in struct sigaction. */
#define SA_RESTORER	0x04000000
#include <asm-generic/signal.h>
#endif
