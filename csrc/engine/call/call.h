/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Caught calls of the target. This folder receives them, answers or holds them,
 * knows the threads that made them, and accesses the memory of these threads.
 */
#ifndef LKLHOST_CALL_H
#define LKLHOST_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/loop.h"

/* Results of a handler that are not results of a system call. */
#define CALL_HELD	(INT64_MIN + 1)	/* the call is answered later */
#define CALL_ANSWERED	(INT64_MIN + 2)	/* the call is answered already */
/* native.h adds one that makes the host's kernel execute the call. */

#define CALL_BUF_SIZE	(256 * 1024)

/*
 * From include/linux/errno.h: restart the call or fail with EINTR, depending on
 * the signal's handler.
 */
#define ERESTARTSYS	512

struct conn;
struct iovec;
struct account;
struct task;
struct source;

/**
 * struct call - a caught system call
 * @id: id of the notification, or number of the stop
 * @listener: the seccomp listener that it came from; unused with engine trace
 * @pid: the calling thread
 * @nr: number of the system call
 * @args: its arguments
 * @task: task of the calling thread
 * @conn: the connection that the call's descriptor belongs to, if any
 * @dup: duplicate of that descriptor while the handler runs, otherwise -1
 * @buf: CALL_BUF_SIZE bytes for the data of this call while its handler runs;
 *	all calls share this buffer
 * @rights: the caller's capabilities in the stack, see rights.c
 * @served: the caller is a served process, see container.c
 * @left: a signal interrupted the call after a descriptor was added to the
 *	caller, see orphan_fd.c
 * @done: what a call that is made again had done before: messages or bytes
 * @begun: it had begun to connect (fastopen.c)
 * @has_name_room, @name_room: recvfrom(2): the length of the buffer for the
 *	sender's address, once it is read; a retry does not read it again
 */
struct call {
	uint64_t id;
	int listener;
	pid_t pid;
	int nr;
	uint64_t args[6];
	struct task *task;
	struct conn *conn;
	int dup;
	char *buf;
	uint64_t rights;
	bool served;
	bool left;
	uint64_t done;
	bool begun;
	bool has_name_room;
	uint32_t name_room;
};

/**
 * struct held_list - calls that wait for the same event
 * @calls: the calls, in the order of their arrival
 * @waking: held_wake() retries them: their connection must not be freed
 * @wake_again: an event has woken the list meanwhile
 */
struct held_list {
	struct list calls;
	bool waking, wake_again;
};

/**
 * struct held - a call that waits
 * @link: entry in a struct held_list
 * @all: entry in the list of all held calls
 * @call: the call, with a duplicate of the caller's descriptor
 * @src: that duplicate in the loop
 * @retry: retries the call; returns CALL_HELD to continue waiting
 * @deadline: CLOCK_MONOTONIC ns; 0 if there is none
 * @timeout_ret: answer at the deadline
 * @since: start of the wait
 * @again: retry periodically, because an event that ends the wait is not
 *	reported
 * @quit: called if a signal or timeout ends the call; may be NULL
 * @partial: answer if a signal arrives; 0 if the answer is an error
 * @event: this retry follows an event of @src, and may end other held calls
 * @quits: a signal or timeout ends the call after this retry
 * @checked: time of the last check for signals
 * @seen: a signal that may be for this thread was pending at the last check
 * @done: private to the retry function
 */
struct held {
	struct list link;
	struct list all;
	struct call call;
	struct source src;
	int64_t (*retry)(struct call *c, struct held *h);
	bool again;
	void (*quit)(struct call *c);
	uint64_t deadline;
	int64_t timeout_ret;
	uint64_t since, checked;
	int64_t partial;
	bool event;
	bool quits;
	bool seen;
	uint64_t done;
};

/**
 * struct call_ops - functions of higher folders that this folder calls
 * @handle: handles a caught call; @foreign: of another architecture
 * @listener_gone: handles the hang-up of a listener that notify_add() added
 * @task_gone: handles that the engine forgets a thread of the target
 * @pages_gone: handles that a thread has ended or has other memory
 * @task_ended: handles the end of a process or thread: its descriptors may be
 *	closed now
 */
struct call_ops {
	void (*handle)(struct call *c, bool foreign);
	void (*listener_gone)(struct source *src);
	void (*task_gone)(const struct task *t);
	void (*pages_gone)(const struct task *t);
	void (*task_ended)(void);
};

extern const struct call_ops *call_ops;

/* notify.c */
void calls_init(const struct call_ops *ops);
int calls_start(int fd);
int notify_add(struct source *src, int fd);
void calls_stop(void);

/* catch.c */
bool call_valid(const struct call *c);
int call_addfd(const struct call *c, int fd, bool cloexec);
int call_addfd_send(struct call *c, int fd, bool cloexec);
int call_addfd_replace(struct call *c, int fd, int newfd, bool cloexec);
int call_getfd(const struct call *c, int fd);

/* call.c */
const char *call_name(int nr);
bool call_answer(const struct call *c, int64_t ret);
int call_dup(struct call *c, int fd);
int call_no_room(const struct call *c);
int call_out_of_reach(const struct call *c, int err);
bool reserve_use(void);
void reserve_fill(void);
bool call_nonblocking(const struct call *c);

/* blocked.c */
void held_init(struct held_list *on);
struct held *call_hold(struct call *c, struct held_list *on, uint32_t events,
		       int64_t (*retry)(struct call *, struct held *),
		       uint64_t deadline, int64_t timeout_ret);
void held_prune(struct held_list *on);
void held_wake(struct held_list *on);
void held_fail(struct held_list *on, int64_t ret);
void held_stop(void);
void held_listener_gone(int listener);
void held_task_gone(const struct task *t);
uint64_t hold_deadline(const struct call *c, int optname);

/* target_mem.c */
int64_t mem_read(const struct call *c, uint64_t addr, void *buf, size_t len);
int64_t mem_readv(const struct call *c, const struct iovec *from, size_t n,
		  void *buf, size_t len);
int64_t mem_write(const struct call *c, uint64_t addr, const void *buf,
		  size_t len);
int64_t mem_writev(const struct call *c, const struct iovec *to, size_t n,
		   const void *buf, size_t len);
void mem_close(void);

/* task.c */
struct task *task_get(pid_t tid);
struct task *task_of(const struct call *c);
void task_gone(pid_t tid);
void task_signal(const struct call *c, int sig);
bool task_can_getfd(void);
int task_getfd(const struct task *t, int fd);
void task_count_socket(struct task *t, bool given);
void task_count_hosted(struct task *t);
void task_count_back(struct task *t);
struct account *task_account(const struct task *t);
void task_refresh(struct task *t);
const char *task_comm(const struct task *t);
pid_t task_tgid(const struct task *t);
size_t tasks_stats(char *buf, size_t len);
void tasks_stop(void);
int task_signal_waits(pid_t tid);
size_t tasks_tree(pid_t *pids, size_t max);

enum { SIGNAL_NONE, SIGNAL_OWN, SIGNAL_MAYBE };

/**
 * struct notify_stats - counters of the engine
 * @calls: notifications received
 * @native: calls that the host kernel executed
 * @held: calls that waited
 * @interrupted: held calls that a signal ended
 * @gone: calls whose callers no longer waited for the answer
 * @left: descriptors that a signal left in a process, see orphan_fd.c
 */
struct notify_stats {
	uint64_t calls, native, held, interrupted, gone, left;
};

extern struct notify_stats notify_stats;

#endif
