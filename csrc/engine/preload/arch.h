/* SPDX-License-Identifier: GPL-2.0-only */
/* What the engine has of each CPU, in a folder of the CPU's. */
#if defined(__x86_64__)
#include "engine/preload/x86_64/arch.h"
#elif defined(__aarch64__)
#include "engine/preload/arm64/arch.h"
#endif
