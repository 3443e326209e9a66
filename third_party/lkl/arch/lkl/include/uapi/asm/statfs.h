/* SPDX-License-Identifier: GPL-2.0-only */
/* The host's own layouts: programs come with their ordinary headers. */
#ifdef __arm__
#include "../../../../arm/include/uapi/asm/statfs.h"
#else
#include <asm-generic/statfs.h>
#endif
