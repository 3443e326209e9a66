/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The program's signal handlers: they are deferred from enter() until the outermost
 * leave(), so that they never interrupt the engine.
 */
#ifndef PRELOAD_SIGNAL_H
#define PRELOAD_SIGNAL_H

#include "engine/preload/internal.h"

int signal_init(void (*ends)(int status, int sig), const char *native_call) HIDDEN;
long call_sigaction(long nr, const long *a) HIDDEN;
int signal_run(void) HIDDEN;
void signal_kill(int sig) HIDDEN;
void signal_own_ending(void (*fn)(int sig)) HIDDEN;
void signal_own(int sig, void (*fn)(int sig)) HIDDEN;

/* Results of leave() */
#define HAD_SIGNAL	1
#define MAY_RESTART	2

/** enter - defer the program's signal handlers from here on */
static inline void enter(void)
{
	me.depth++;
	barrier();
}

/** leave - run the deferred handler; returns HAD_SIGNAL and MAY_RESTART flags */
static inline int leave(void)
{
	barrier();
	me.depth--;
	barrier();
	if (likely(me.depth || !me.pending))
		return 0;
	return signal_run();
}

#endif
