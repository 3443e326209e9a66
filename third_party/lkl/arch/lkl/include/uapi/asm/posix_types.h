/* SPDX-License-Identifier: GPL-2.0-only */
/* The host's own layouts: programs come with their ordinary headers. */
#ifdef __x86_64__
#include "../../../../x86/include/uapi/asm/posix_types_64.h"
#else
#include <asm-generic/posix_types.h>
#endif
