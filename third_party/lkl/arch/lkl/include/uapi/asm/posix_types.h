/* SPDX-License-Identifier: GPL-2.0-only */
/* The host's own layout: programs are compiled with their ordinary headers. */
#if defined(__x86_64__)
#include "../../../../x86/include/uapi/asm/posix_types_64.h"
#elif defined(__aarch64__)
#include "../../../../arm64/include/uapi/asm/posix_types.h"
#elif defined(__arm__)
#include "../../../../arm/include/uapi/asm/posix_types.h"
#else
#include <asm-generic/posix_types.h>
#endif
