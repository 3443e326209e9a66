/* SPDX-License-Identifier: GPL-2.0-only */
/* Internal to trace/: a traced thread and its registers. */
#ifndef LKLHOST_TRACE_INTERNAL_H
#define LKLHOST_TRACE_INTERNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#ifdef __arm__
/* So that this compiles: 32-bit arm has no engine trace, and regs.c says so. */
#define user_regs_struct user_regs
#endif

/**
 * struct regs - the registers of a thread that waits in a stop
 * @user: as in NT_PRSTATUS
 * @nr: the number of the system call, which is separate on arm64
 */
struct regs {
	struct user_regs_struct user;
	long nr;
};

/*
 * Where a thread is. RUNS includes all stops that wait.c ends at once. In
 * all other states the thread waits for an answer.
 */
enum at {
	RUNS,
	WAITS_ENTRY,	/* before its call, which has not been executed */
	WAITS_EXIT,	/* after a call that was executed in place of its own */
	BLOCKED,	/* on the way to such a call, see step_unblocked() */
};

/**
 * struct tracee - a traced thread
 * @next: the next thread with the same hash
 * @at: where it is
 * @id: number of its last stop for a call
 * @regs: registers at that stop
 * @result: result of the last call that it executed for lklhost
 * @page: address of a page for lklhost in its memory, 0 if there is none
 * @mask: its signal mask, while lklhost executes calls in it
 * @stop_sig: a SIGSTOP arrived meanwhile, and must be sent again
 * @step: BLOCKED: the call that it will make
 * @left, @n_left: BLOCKED: descriptors to close then
 * @answered: BLOCKED: it has its answer, @answer or @native, for then
 * @kept: the next thread whose @status trace_wait() must still handle
 * @is_kept: it must
 * @files: number of its descriptor table; 0: unknown
 * @interrupted: it must stop, because another thread gets a descriptor
 * @awaited: trace_alone() waits for this
 * @status: a wait status, or TRACEE_REPLACED
 */
struct tracee {
	struct tracee *next;
	pid_t tid;
	enum at at;
	uint64_t id;
	struct regs regs;
	int64_t result;
	uint64_t page;
	uint64_t mask;
	bool stop_sig;
	struct regs step;
	uint64_t left[2];
	unsigned int n_left;
	bool answered, native;
	int64_t answer;
	struct tracee *kept;
	bool is_kept;
	uint64_t files;
	bool interrupted, awaited;
	int status;
};

/*
 * Not a wait status: the thread executed a program, and has another number now;
 * and that of the thread whose number it has.
 */
#define TRACEE_REPLACED	(-1)
#define TRACEE_EXECUTED	(-2)

/* tracee.c */
extern const struct trace_ops *trace_ops;	/* the engine's; NULL before and after it */
struct tracee *tracee_find(pid_t tid);
struct tracee *tracee_next(const struct tracee *t);
struct tracee *tracee_get(pid_t tid);
void tracee_drop(pid_t tid);
void tracee_keep(pid_t tid, int status);
bool tracee_kept(void);
struct tracee *tracee_take_kept(void);
void tracee_forked(const struct tracee *t);
void tracee_executed(struct tracee *t);
void tracee_resumed(const struct tracee *t);
void tracee_strayed(pid_t tid, const char *how);

/* exit_stop.c */
void exit_stop_reached(pid_t tid);
void exit_stop_end(pid_t tid);

/* step.c */
void step_unblocked(struct tracee *t, int stop);

/* limit.c */
void limit_start(void);
void limit_stop(void);
bool limit_passed(pid_t tid);
bool limit_blocked(void);
long limit_usage(pid_t tid, char *state);

/* regs.c */
int regs_read(pid_t tid, struct regs *r);
int regs_write(pid_t tid, const struct regs *r);
uint64_t regs_arg(const struct regs *r, int i);
uint64_t regs_pc(const struct regs *r);
bool regs_same(const struct regs *r, const struct regs *want, bool done);
int64_t regs_result(const struct regs *r);
void regs_set_result(struct regs *r, int64_t value);
void regs_set_call(struct regs *r, long nr, const uint64_t args[6]);
void regs_repeat(struct regs *r);
void regs_restart(pid_t tid);

#endif
