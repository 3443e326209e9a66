// SPDX-License-Identifier: GPL-2.0-only
/*
 * lklhost's loop for a fuzzer: it never sleeps.
 */
#include "base/loop.c"
#include "stack/run.c"

#include "fuzz.h"

/** again - queue work for the next turn */
static void again(struct work *w)
{
	work_queue(w);
}

/* A loop with work to do does not sleep. */
static struct work busy = { LIST_INIT(busy.link), again };

/** fuzz_loop_start - initialize; called once in a process */
void fuzz_loop_start(void)
{
	loop_init();
	work_queue(&busy);
}

/** fuzz_turn - one turn of the loop */
void fuzz_turn(void)
{
	panic_armed = true;
	if (sigsetjmp(panic_env, 1))
		stack_panicked();
	else
		loop_turn();
	panic_armed = false;
}

/** fuzz_settle - finish pending work after an input */
void fuzz_settle(void)
{
	int i;

	for (i = 0; i < 4; i++)
		fuzz_turn();
	deferred_free_end();
	quit = false;
}
