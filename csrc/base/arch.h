/* SPDX-License-Identifier: GPL-2.0-only */
/* The CPU architecture, as an AUDIT_ARCH_* constant (seccomp(2)). */
#ifndef LKLHOST_ARCH_H
#define LKLHOST_ARCH_H

#include <linux/audit.h>

#if defined(__x86_64__)
#define NOTIFY_ARCH	AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NOTIFY_ARCH	AUDIT_ARCH_AARCH64
#elif defined(__arm__)
#define NOTIFY_ARCH	AUDIT_ARCH_ARM
#else
#error "no seccomp filter for this architecture"
#endif

#endif
