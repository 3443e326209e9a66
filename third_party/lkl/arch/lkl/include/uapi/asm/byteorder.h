/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _UAPI_ASM_LKL_BYTEORDER_H
#define _UAPI_ASM_LKL_BYTEORDER_H
#include <linux/byteorder/little_endian.h>
#endif
