/* SPDX-License-Identifier: GPL-2.0-only */
/* The host's own layout: programs are compiled with their ordinary headers. */
#if defined(__aarch64__) || defined(__arm__)
#include "../../../../arm64/include/uapi/asm/fcntl.h"
#else
#include <asm-generic/fcntl.h>
#endif
