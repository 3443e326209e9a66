/* SPDX-License-Identifier: GPL-2.0-only */
#include <asm-generic/nommu_context.h>
