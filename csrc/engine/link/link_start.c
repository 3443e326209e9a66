// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel in the target's own process: how it is loaded, and the data it
 * leaves. See preload_link.h; requests are in engine/link.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/link/link.h"
#include "shared/preload_link.h"
#include "stack/stack.h"

/* Separators of names in LD_PRELOAD, ld.so(8). */
#define PRELOAD_SEPARATORS	": \t\n"

#define READY_MS	30000		/* from exec to the first frame */
#define MS		1000000ull

/* Our end of the link, the target's end, and the shared memory. */
static int sock = -1, theirs = -1, memfd = -1;
static struct link_shared *shared;
static uint64_t log_seen;

/* Used where control requests need a back end; calls are forwarded instead. */
static const struct stack_ops link_ops = { .abi = CTL_ABI_NATIVE };

/**
 * preloaded - value for LD_PRELOAD: our library and the stack library
 *
 * Our library loads the stack itself. However, musl and bionic give a library
 * loaded by dlopen() no static TLS, which the stack needs
 * (tls_model("initial-exec")). bionic also does not resolve its symbols in the
 * program's C library. Both do so for libraries that are loaded with the
 * program.
 */
static void preloaded(char text[LINK_PRELOAD])
{
	bool both = !strpbrk(host.stack_path, PRELOAD_SEPARATORS);

	snprintf(text, LINK_PRELOAD, "%s%s%s", host.preload, both ? ":" : "",
		 both ? host.stack_path : "");
}

/**
 * link_init - create the link, before the target is forked
 * @err: one line for the user on failure
 */
int link_init(char *err, size_t errlen)
{
	int sv[2], ret = -ENAMETOOLONG;

	stack = &link_ops;
	if (strlen(host.stack_path) >= LINK_PATH ||
	    strlen(host.preload) >= LINK_PATH)
		goto fail;
	ret = -EINVAL;
	if (strpbrk(host.preload, PRELOAD_SEPARATORS))
		goto fail;
	memfd = memfd_create("lklrun-preload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/*
	 * Sealed, so that the target cannot truncate the memory that we read.
	 */
	if (memfd < 0 ||
	    ftruncate(memfd, sizeof(struct link_shared)) ||
	    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv)) {
		ret = -errno;
		goto fail;
	}
	sock = sv[0];
	theirs = sv[1];
	shared = mmap(NULL, sizeof(struct link_shared),
			     PROT_READ | PROT_WRITE, MAP_SHARED, memfd,
			     0);
	if (shared == MAP_FAILED) {
		ret = -errno;
		shared = NULL;
		goto fail;
	}
	shared->magic = LINK_MAGIC;
	strcpy(shared->stack, host.stack_path);
	preloaded(shared->preload);
	return 0;
fail:
	snprintf(err, errlen, ret == -EINVAL ?
		 "%s: a name with blanks or colons cannot be preloaded; install lklrun elsewhere, or use --engine supervise" :
		 "preparing %s: %s", host.preload, strerror(-ret));
	return ret;
}

/**
 * preload - make the loader load @libraries into the program after exec
 *
 * Libraries that the caller preloads stay in the list, after ours.
 */
static int preload(const char *libraries)
{
	const char *old = getenv("LD_PRELOAD");
	char *text;
	int ret;

	if (asprintf(&text, "%s%s%s", libraries, old ? ":" : "",
		     old ? old : "") < 0)
		return -ENOMEM;
	ret = setenv("LD_PRELOAD", text, 1) ? -errno : 0;
	free(text);
	return ret;
}

/**
 * link_child - in the child, before exec: make the loader load our library
 */
int link_child(void)
{
	char text[64];

	if (fcntl(theirs, F_SETFD, 0) || fcntl(memfd, F_SETFD, 0))
		return -errno;
	snprintf(text, sizeof(text), "%d:%d", theirs, memfd);
	return setenv(LINK_ENV, text, 1) ? -errno : preload(shared->preload);
}

/**
 * ready_read - read @len bytes of the library's first frame, until @end
 *
 * This is the only blocking wait in this file. It happens before any client is
 * served, and ends with the target, with lklrun or at its limit. The target can
 * delay it up to this limit.
 */
static int ready_read(void *buf, size_t len, uint64_t end)
{
	size_t got = 0;

	while (got < len) {
		struct pollfd p[] = {
			{ .fd = sock, .events = POLLIN },
			{ .fd = host.ctl_fd },
		};
		uint64_t now = now_ns();
		ssize_t n;

		if (now >= end ||
		    poll(p, 2, (int)((end - now + MS - 1) / MS)) == 0)
			return -ETIMEDOUT;
		if (p[1].revents)
			return -EPIPE;
		if (!p[0].revents)
			continue;
		n = recv(sock, (char *)buf + got, len - got, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return -ESRCH;
		got += (size_t)n;
	}
	return 0;
}

/** ready_text - read the library's own error text */
static int ready_text(const struct ctl_hdr *h, char *err, size_t errlen,
		      uint64_t end)
{
	size_t len = h->len - sizeof(*h);
	int ret = -ENOEXEC;

	if (len > errlen - 1)
		len = errlen - 1;
	if (h->type == LINK_READY && h->len > sizeof(*h))
		ret = ready_read(err, len, end);
	if (!ret)
		err[len] = '\0';
	return ret;
}

/**
 * link_ready - wait for the library's first frame
 * @err: one line on failure; empty if the target ended first
 */
int link_ready(char *err, size_t errlen)
{
	uint64_t end = now_ns() + READY_MS * MS;
	struct ctl_hdr h = { 0 };
	int ret;

	close(theirs);
	close(memfd);
	theirs = -1;
	memfd = -1;
	*err = '\0';
	ret = ready_read(&h, sizeof(h), end);
	if (!ret && h.type == LINK_READY && !h.status)
		return 0;
	if (ret == -ETIMEDOUT)
		snprintf(err, errlen, "the program did not load %s within %d s; use --engine supervise",
			 host.preload, READY_MS / 1000);
	if (ret)
		return ret;
	ret = ready_text(&h, err, errlen, end);
	if (ret)
		snprintf(err, errlen, "the preloaded library sent an invalid message; it is of another version");
	return ret == -EPIPE ? ret : -ENOEXEC;
}

/** link_fd - our end of the link */
int link_fd(void)
{
	return sock;
}

/** link_log - copy the new kernel output to the log */
void link_log(void)
{
	const struct link_shared *s = shared;
	uint64_t end;

	if (!s)
		return;
	end = __atomic_load_n(&s->ring_end, __ATOMIC_ACQUIRE);
	if (end - log_seen > LINK_RING)
		log_seen = end - LINK_RING;
	while (log_seen < end) {
		size_t at = log_seen % LINK_RING, n = LINK_RING - at;

		if (n > end - log_seen)
			n = end - log_seen;
		log_console(s->ring + at, n);
		log_seen += n;
	}
}

/** link_accounted - whether the library has written an account */
bool link_accounted(void)
{
	return __atomic_load_n(&shared->account_len, __ATOMIC_ACQUIRE) != 0;
}

/** link_ask_end - set whether lklrun wants to know of the end in advance */
void link_ask_end(bool wanted)
{
	__atomic_store_n(&shared->ask_end, wanted, __ATOMIC_RELEASE);
}

/** link_farewell - lklrun does not need the kernel any more */
void link_farewell(void)
{
	__atomic_store_n(&shared->farewell, 1, __ATOMIC_RELEASE);
}

/**
 * link_account - the account that the library wrote when the process ended
 *
 * Empty if the process was killed. The target could have written anything
 * there.
 */
size_t link_account(char *buf, size_t len)
{
	size_t n = __atomic_load_n(&shared->account_len,
				   __ATOMIC_ACQUIRE);

	link_log();
	if (n > LINK_ACCOUNT)
		n = LINK_ACCOUNT;
	if (n > len)
		n = len;
	memcpy(buf, shared->account, n);
	return n;
}
