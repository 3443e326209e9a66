// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors that a signal has left in the target.
 *
 * Theory of operation
 *
 * Without SECCOMP_ADDFD_FLAG_SEND, a call is answered with a descriptor in two
 * steps: lklhost adds the descriptor to the caller, and then sends its number.
 * If a signal interrupts the caller between the two steps, the caller has a
 * descriptor that it does not know. Nobody can close it from outside.
 *
 * Such a descriptor is therefore remembered, with its connection in the stack,
 * and the process gets its number from the next equal call. This is usually the
 * same call: either the kernel restarts it, or the program repeats it after
 * EINTR. A call is equal if it creates the same kind of socket, or accepts from
 * the same listener, with the same flags.
 *
 * Before a number is handed out, its inode number is compared, because the
 * program may have closed all its descriptors in the meantime.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/list.h"
#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"

#define LEFT_MAX	256	/* remembered descriptors */

/**
 * struct orphan_fd - a descriptor that a process has and does not know
 * @tgid: the process
 * @want: what the call wanted, see wants()
 * @num: number in the process
 * @ino: its inode number
 * @len, @ss: with accept, the peer's address
 */
struct orphan_fd {
	struct list link;
	pid_t tgid;
	uint64_t want[4];
	int num;
	uint64_t ino;
	socklen_t len;
	struct sockaddr_storage ss;
};

static struct list all = LIST_INIT(all);
static unsigned int n_left;

/** wants - get what a call wants; equal calls have equal values */
static void wants(const struct call *c, uint64_t want[4])
{
	bool is_socket = c->nr == SYS_socket;

	want[0] = is_socket;
	want[1] = is_socket ? (uint32_t)c->args[0] : c->conn->id;
	want[2] = is_socket ? (uint32_t)c->args[1] :
		  c->nr == SYS_accept4 ? (uint32_t)c->args[3] : 0;
	want[3] = is_socket ? (uint32_t)c->args[2] : 0;
}

/** orphan_fd_drop - forget a descriptor */
static void orphan_fd_drop(struct orphan_fd *l)
{
	list_del(&l->link);
	free(l);
	n_left--;
}

/**
 * orphan_fd_add - remember a descriptor that the caller has and does not know
 * @num: number in the caller
 * @ino: its inode number
 * @ss, @len: with accept, the peer's address
 */
void orphan_fd_add(const struct call *c, int num, uint64_t ino,
		   const struct sockaddr_storage *ss, socklen_t len)
{
	struct orphan_fd *l = calloc(1, sizeof(*l));

	notify_stats.left++;
	if (!l)
		return;
	if (n_left == LEFT_MAX)
		orphan_fd_drop(container_of(all.next, struct orphan_fd, link));
	l->tgid = task_tgid(c->task);
	wants(c, l->want);
	l->num = num;
	l->ino = ino;
	if (ss)
		l->ss = *ss;
	l->len = len;
	list_add_tail(&l->link, &all);
	n_left++;
}

/** is_there - whether the process still has the descriptor */
static bool is_there(const struct call *c, const struct orphan_fd *l)
{
	int fd = call_getfd(c, l->num);
	bool same;

	if (fd < 0)
		return false;
	same = fd_ino(fd) == l->ino;
	close(fd);
	return same;
}

/**
 * orphan_fd_find - find a descriptor that can answer the call
 *
 * Returns NULL if there is none.
 */
struct orphan_fd *orphan_fd_find(const struct call *c)
{
	pid_t tgid = task_tgid(c->task);
	struct list *pos, *tmp;
	uint64_t want[4];

	if (list_empty(&all))
		return NULL;
	wants(c, want);
	list_for_each_safe(pos, tmp, &all) {
		struct orphan_fd *l = container_of(pos, struct orphan_fd, link);

		if (l->tgid != tgid || memcmp(l->want, want, sizeof(want)))
			continue;
		if (is_there(c, l))
			return l;
		orphan_fd_drop(l);
	}
	return NULL;
}

/**
 * orphan_fd_give - answer the call with what orphan_fd_find() has found
 *
 * If another signal interrupts the call, the descriptor stays remembered.
 */
int64_t orphan_fd_give(struct call *c, struct orphan_fd *l)
{
	int64_t ret = c->nr != SYS_socket && c->args[1] ?
		      addr_write(c, c->args[1], c->args[2], &l->ss, l->len) : 0;

	if (ret)
		return ret;
	if (call_answer(c, l->num))
		orphan_fd_drop(l);
	return CALL_ANSWERED;
}

/** orphan_fd_stop - forget all descriptors */
void orphan_fd_stop(void)
{
	while (!list_empty(&all))
		orphan_fd_drop(container_of(all.next, struct orphan_fd, link));
}
