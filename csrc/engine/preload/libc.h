/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The properties of the program's C library. Each library of the engine contains one of
 * the files in libc/: liblklpreload.so is for glibc and musl, liblklpreload-bionic.so
 * for bionic.
 */
#ifndef PRELOAD_LIBC_H
#define PRELOAD_LIBC_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/preload/internal.h"

/* libc_signals - the signals that the C library uses itself, as a mask */
uint64_t libc_signals(void) HIDDEN;

/* libc_cancels - whether the signal only interrupts a call, to cancel its thread */
bool libc_cancels(int sig) HIDDEN;

/* libc_calls - the number of patched calls that its code has at least */
extern HIDDEN const int libc_calls;

#endif
