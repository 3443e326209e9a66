/* SPDX-License-Identifier: GPL-2.0-only */
/* The host's own layout: programs are compiled with their ordinary headers. */
#if defined(__x86_64__)
#include "../../../../x86/include/uapi/asm/stat.h"
#elif defined(__arm__)
#include "../../../../arm/include/uapi/asm/stat.h"
#else
#include <asm-generic/stat.h>
#endif
