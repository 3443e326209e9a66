/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes that lklhost traces with ptrace(2), for the engine trace. See
 * wait.c.
 */
#ifndef LKLHOST_TRACE_H
#define LKLHOST_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Result of trace_step(): the thread has ended, or does not stop. */
#define TRACE_GONE	INT64_MIN
/* The thread does not run, for example because it is frozen; see resumed(). */
#define TRACE_BLOCKED	(INT64_MIN + 1)

/**
 * struct trace_call - a caught system call
 * @id: number of the stop; no other stop has the same number
 * @tid: the calling thread
 * @nr: number of the system call
 * @args: its arguments
 */
struct trace_call {
	uint64_t id;
	pid_t tid;
	int nr;
	uint64_t args[6];
};

/**
 * struct trace_ops - callbacks for events of the traced threads
 * @called: handles a caught call, which waits until it is answered
 * @ended: handles the end of a thread
 * @resumed: handles that a thread runs again after TRACE_BLOCKED, or has ended
 * @strayed: reports a thread whose process was killed, because it did not
 *	execute the call that lklhost had set up, and how
 */
struct trace_ops {
	void (*called)(const struct trace_call *call);
	void (*ended)(pid_t tid);
	void (*resumed)(pid_t tid, uint64_t id);
	void (*strayed)(pid_t tid, const char *how);
};

/* tracee.c */
int trace_seize(pid_t pid);

/* wait.c */
void trace_start(const struct trace_ops *ops);
void trace_stop(void);
pid_t trace_wait(int *status);
void trace_reap(void);

/* exit_stop.c */
int trace_exit_stop(pid_t tid, bool (*may_run)(pid_t tid));
void trace_exit_pass(pid_t tid);

/* step.c */
bool trace_waits(pid_t tid, uint64_t id);
bool trace_answer(pid_t tid, uint64_t id, int64_t ret);
bool trace_native(pid_t tid, uint64_t id);
int trace_begin(pid_t tid, uint64_t id);
int64_t trace_step(pid_t tid, long nr, const uint64_t args[6]);
void trace_end(pid_t tid);
uint64_t trace_page(pid_t tid);
void trace_set_page(pid_t tid, uint64_t page);

/* alone.c */
void trace_interrupt_others(pid_t tid, bool all);
int trace_alone(pid_t tid, bool all);

/* fd_channel.c */
int trace_meeting_open(void);
void trace_meeting_set(int fd);
int trace_meeting(void);
size_t trace_meeting_name(void *addr);

#endif
