/* SPDX-License-Identifier: GPL-2.0-only */
/* The host's own layout: programs are compiled with their ordinary headers. */
#ifdef __arm__
#include "../../../../arm/include/uapi/asm/statfs.h"
#else
#include <asm-generic/statfs.h>
#endif
