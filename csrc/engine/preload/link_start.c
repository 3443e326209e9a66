// SPDX-License-Identifier: GPL-2.0-only
/*
 * Starts a program that contains the kernel, before its main().
 *
 * Theory of operation
 *
 *	the program's thread				the server's thread
 *	take lklhost's settings from the environment
 *	patch the C library, load the stack's
 *	send LINK_READY
 *	start the server's thread	--->		LINK_ADD, BOOT, SYSCALL ...
 *	wait				<---		GO
 *	take the program's calls	--->		answer GO
 *	main()						keep serving
 *
 * main() sees the environment of the caller. LD_PRELOAD is restored too, so a
 * program that this one executes does not load the library.
 *
 * A process started with LD_PRELOAD but without lklrun would use the host's
 * network, which its user does not expect. It ends with an error message
 * instead.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/preload/internal.h"
#include "engine/preload/link.h"

#define EXIT_OWN	127
#define FAREWELL_MS	2000	/* lklhost waits for lklrun for the same time */

/** map - map the page that lklhost reads after this process has ended */
static bool map(int fd)
{
	struct stat st;
	void *p;

	if (RAW4(newfstatat, fd, "", &st, AT_EMPTY_PATH) || st.st_size != sizeof(*link_shared))
		return false;
	p = mmap(NULL, sizeof(*link_shared), PROT_READ | PROT_WRITE, MAP_SHARED,
		 fd, 0);
	if (p == MAP_FAILED)
		return false;
	link_shared = p;
	close(fd);
	return link_shared->magic == LINK_MAGIC;
}

/** restore_env - restore the environment of the caller */
static void restore_env(void)
{
	const char *old = getenv("LD_PRELOAD");
	size_t len = strlen(link_shared->preload);
	char *theirs;

	unsetenv(LINK_ENV);
	if (!old || strncmp(old, link_shared->preload, len))
		return;
	if (old[len] != ':') {
		unsetenv("LD_PRELOAD");
		return;
	}
	theirs = strdup(old + len + 1);
	if (theirs)
		setenv("LD_PRELOAD", theirs, 1);
	free(theirs);
}

/** farewell - let lklrun close its side of the network while the kernel still runs */
static void farewell(void)
{
	const struct timespec wait = { .tv_nsec = 1000000 };
	int ms;

	if (!__atomic_load_n(&link_shared->ask_end, __ATOMIC_ACQUIRE))
		return;
	link_send(LINK_ENDING, 0, "");
	for (ms = 0; ms < FAREWELL_MS; ms++) {
		if (__atomic_load_n(&link_shared->farewell, __ATOMIC_ACQUIRE))
			break;
		nanosleep(&wait, NULL);
	}
}

/** at_exit - send pending data, finish the statistics, notify lklrun */
static void at_exit(int status)
{
	bool drained;
	size_t n;

	(void)status;
	drained = preload_drain();
	n = engine_account(link_shared->account, LINK_ACCOUNT);
	__atomic_store_n(&link_shared->account_len, (uint32_t)n,
			 __ATOMIC_RELEASE);
	farewell();
	if (!drained)
		preload_halt();
}

/** warned - print a line for the user */
static void warned(const char *line)
{
	link_send(LINK_WARN, 0, line);
}

/** refused - report a loopback address that refused a connect */
static void refused(const char *text)
{
	link_send(LINK_REFUSED, 0, text);
}

/** prepare - do everything that can fail, before lklhost is told that we are ready */
static int prepare(char *err, size_t errlen)
{
	int ret = preload_prepare(err, errlen);

	if (ret)
		return ret;
	preload_own(true);
	return link_stack_open(link_shared->stack, err, errlen);
}

/** alone - lklrun has not started this process: end it, unless it is a self-test */
static void alone(void)
{
	char name[16] = "";

	if (preload_selftested || getenv(PRELOAD_SELFTEST))
		return;
	RAW2(prctl, PR_GET_NAME, name);
	dprintf(STDERR_FILENO, "lklrun: %s was started with liblklpreload.so but without lklrun, and would use the host's network; use lklrun --engine preload -- %s\n",
		name, name);
	_exit(EXIT_OWN);
}

/** start - see the top of this file */
__attribute__((constructor))
static void start(void)
{
	const char *env = getenv(LINK_ENV);
	char err[512] = "";
	int sock, memfd, ret;

	if (!env || sscanf(env, "%d:%d", &sock, &memfd) != 2 || !map(memfd)) {
		alone();
		return;
	}
	restore_env();
	ret = prepare(err, sizeof(err));
	if (!ret) {
		sock = preload_own_fd(sock);
		if (sock < 0) {		/* without a socket, only stderr is left */
			dprintf(STDERR_FILENO, "lklrun: a descriptor for the control server: %s\n",
				strerror(-sock));
			_exit(EXIT_OWN);
		}
		ret = link_serve(sock);
		if (ret)
			snprintf(err, sizeof(err), "starting the control server in the program: %s",
				 strerror(-ret));
	}
	if (ret) {
		struct ctl_hdr h = { .type = LINK_READY, .status = ret };

		h.len = (uint32_t)(sizeof(h) + strlen(err));
		if (write(sock, &h, sizeof(h)) != (ssize_t)sizeof(h) ||
		    write(sock, err, strlen(err)) < 0)
			_exit(EXIT_OWN);
		_exit(EXIT_OWN);
	}
	link_await_go();
	preload_warn(warned);
	preload_refused(refused);
	preload_at_exit(at_exit);
	preload_own(false);
	ret = preload_install();
	link_going(ret);
	if (ret)
		_exit(EXIT_OWN);
}
