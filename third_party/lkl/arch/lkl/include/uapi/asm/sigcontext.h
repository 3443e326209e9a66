/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _UAPI_ASM_LKL_SIGCONTEXT_H
#define _UAPI_ASM_LKL_SIGCONTEXT_H
/* No signal frame is ever built: the host delivers its own signals. */
struct sigcontext {
	unsigned long unused;
};
#endif
