// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes the preloaded library's end of the link with frames of lklhost for
 * several clients, with descriptors, and with calls that wait in the stack.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "fuzz.h"

static int fuzz_wait(void);
static int fuzz_thread(pthread_t *t, const pthread_attr_t *a,
		       void *(*fn)(void *arg), void *arg);
static ssize_t fuzz_sendmsg(int fd, const struct msghdr *mh, int flags);

#define pthread_cond_wait(cond, lock) fuzz_wait()
#define pthread_create fuzz_thread
#define pthread_join(thread, ret) ((void)(thread))
#define sendmsg fuzz_sendmsg
#include "engine/preload/link_out.c"
#include "engine/preload/link_serve.c"
#undef sendmsg
#include "base/log.h"
#include "stack/backend.h"

#define BODY	16384

static int theirs = -1;			/* lklhost's end */
static uint8_t send_part = 255;		/* maximum number of bytes in a message */

/** fuzz_wait - let the program's thread continue at once */
static int fuzz_wait(void)
{
	going.state = TAKEN;
	return 0;
}

/** fuzz_thread - run the function at once, without a new thread */
static int fuzz_thread(pthread_t *t, const pthread_attr_t *a,
		       void *(*fn)(void *arg), void *arg)
{
	(void)a;
	*t = pthread_self();
	fn(arg);
	return 0;
}

/** fuzz_sendmsg - accept all bytes, or a part of them */
static ssize_t fuzz_sendmsg(int fd, const struct msghdr *mh, int flags)
{
	static volatile uint8_t seen;
	size_t n = 0, i, j;

	(void)fd;
	(void)flags;
	for (i = 0; i < mh->msg_iovlen; i++)
		for (j = 0; j < mh->msg_iov[i].iov_len; j++, n++) {
			if (n == send_part && send_part < 255)
				return (ssize_t)n;
			seen = ((uint8_t *)mh->msg_iov[i].iov_base)[j];
		}
	(void)seen;
	return (ssize_t)n;
}

/* Stubs for the rest of the library. */
void preload_own(bool on) { (void)on; }
bool preload_alive(void) { return true; }
void preload_mptcp(bool on) { (void)on; }
void preload_spin(unsigned int usec) { (void)usec; }
void preload_coalesce(unsigned int usec) { (void)usec; }
void link_stack_wake(int fd) { (void)fd; }
void log_line(const char *fmt, ...) { (void)fmt; }
void loop_panic(void) { abort(); }
bool engine_has_stack_fd(int fd) { return fd == 99; }

/** engine_stats - write counters of @len bytes at most */
size_t engine_stats(char *buf, size_t len)
{
	memset(buf, 'x', len);
	return len / 256;
}

/** engine_owners - write owners of @len bytes at most */
size_t engine_owners(void *buf, size_t len)
{
	memset(buf, 0, len);
	return len / 4096;
}

/** tell - send bytes of lklhost, with descriptors */
static void tell(const void *buf, size_t len, unsigned int n)
{
	int fds[FD_PASS_MAX] = { 0 };

	fd_pass_send(theirs, buf, len, fds, n % (FD_PASS_MAX + 1), MSG_DONTWAIT);
}

/** tell_frame - send a frame, and let the library handle it */
static void tell_frame(struct input *input)
{
	static uint8_t buf[sizeof(struct ctl_hdr) + BODY];
	struct ctl_hdr h = { .type = get8(input), .flags = get8(input) % 4 };
	uint8_t files = get8(input);
	size_t got;
	const uint8_t *body;

	if (h.type & 0x40)
		h.type = LINK_GONE;
	h.id = get8(input);
	body = next_bytes(input, get16(input) % BODY, &got);
	h.len = (uint32_t)(sizeof(h) + got);
	memcpy(buf, &h, sizeof(h));
	memcpy(buf + sizeof(h), body, got);
	tell(buf, h.len, files > 250 ? files : 0);
	frame();
}

/** step - carry out one action */
static void step(struct input *input, uint8_t what)
{
	switch (what & 3) {
	case 0:
		tell_frame(input);
		break;
	case 1:
		fake_ready(get8(input));
		break;
	case 2:
		fuzz_clock_add(get16(input));
		break;
	case 3:
		send_part = get8(input) | 1;
		break;
	}
	if (stack_alive())
		stack_turn();
	timers_run();
	deferred_free_run();
}

/** rest - send the rest of an input as raw bytes, then end the link */
static void rest(struct input *input)
{
	size_t got;
	const uint8_t *bytes = next_bytes(input, left(input), &got);

	tell(bytes, got < 4096 ? got : 4096, 0);
	close(theirs);
	while (frame())
		deferred_free_run();
}

/** link_over - forget all clients */
static void link_over(void)
{
	close(link_sock);
	if (in_fd >= 0)
		close(in_fd);
	in_fd = -1;
	fake_end();
	while (!list_empty(&clients))
		client_free(container_of(clients.next, struct client, link));
	deferred_free_end();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input input = { data, data + len };
	unsigned int n;
	int sv[2];

	if (!in)
		in = malloc(CTL_FRAME_MAX);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		abort();
	link_sock = sv[0];
	theirs = sv[1];
	send_part = 255;
	going.state = BEFORE_GO;
	ctl_ops = &ops;
	host.state = get8(&input) % 3;
	fake_start(&input);
	for (n = 0; left(&input) && n < 100; n++) {
		uint8_t what = get8(&input);

		if (what == 255)
			break;
		step(&input, what);
	}
	rest(&input);
	link_over();
	return 0;
}
