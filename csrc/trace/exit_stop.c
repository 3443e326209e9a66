// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stop a thread once, after the call that it waits in.
 *
 * Theory of operation
 *
 * With seccomp notification, lklhost may let the host's kernel execute a call.
 * To see what the call has done before the thread runs again, lklhost seizes
 * the thread and interrupts it (ptrace(2)) while it waits for its answer. The
 * kernel then stops the thread on its way back to its program. The order does
 * not matter: if the kernel stops the thread before it executes the call, the
 * call starts again, and lklhost is notified again.
 *
 * Since Linux 5.19, the interruption does not end the wait for the answer
 * (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV). Before, it always does.
 *
 * If lklhost ends meanwhile, the kernel kills the thread (PTRACE_O_EXITKILL).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ptrace.h>

#include "base/list.h"
#include "trace/internal.h"
#include "trace/trace.h"

/**
 * struct exit_stop - a thread that stops after its call
 * @may_run: called then; NULL: it does not matter any more
 */
struct exit_stop {
	struct list link;
	pid_t tid;
	bool (*may_run)(pid_t tid);
};

static struct list stops = LIST_INIT(stops);

/** find - find the entry of a thread, or NULL */
static struct exit_stop *find(pid_t tid)
{
	struct list *pos;

	list_for_each(pos, &stops) {
		struct exit_stop *e = container_of(pos, struct exit_stop, link);

		if (e->tid == tid)
			return e;
	}
	return NULL;
}

/**
 * trace_exit_stop - stop a thread after its call
 * @tid: a thread that waits for the answer to its call. If it does not wait any
 *	more, trace_exit_pass() must follow
 * @may_run: called when it has stopped; returns whether it may continue. Otherwise it
 *	must be killed, and does not run until then
 *
 * Returns 0 or a negative errno: EPERM if another process traces the thread.
 */
int trace_exit_stop(pid_t tid, bool (*may_run)(pid_t tid))
{
	struct exit_stop *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	if (ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_EXITKILL)) {
		free(e);
		return -errno;
	}
	e->tid = tid;
	e->may_run = may_run;
	list_add_tail(&e->link, &stops);
	if (ptrace(PTRACE_INTERRUPT, tid, 0, 0))
		return -errno;	/* killed: exit_stop_end() follows */
	return 0;
}

/** trace_exit_pass - let a thread continue after its stop, whatever it has done */
void trace_exit_pass(pid_t tid)
{
	struct exit_stop *e = find(tid);

	if (e)
		e->may_run = NULL;
}

/** exit_stop_end - handle the end of a thread */
void exit_stop_end(pid_t tid)
{
	struct exit_stop *e = find(tid);

	if (!e)
		return;
	list_del(&e->link);
	free(e);
}

/** exit_stop_reached - handle a stop */
void exit_stop_reached(pid_t tid)
{
	struct exit_stop *e = find(tid);

	if (e && e->may_run && !e->may_run(tid))
		return;
	ptrace(PTRACE_DETACH, tid, 0, 0);
	exit_stop_end(tid);
}
