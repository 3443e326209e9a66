/* SPDX-License-Identifier: GPL-2.0-only */
/* Selects the header of the CPU, which is in a folder named after the CPU. */
#if defined(__x86_64__)
#include "engine/preload/x86_64/arch.h"
#elif defined(__aarch64__)
#include "engine/preload/arm64/arch.h"
#endif
