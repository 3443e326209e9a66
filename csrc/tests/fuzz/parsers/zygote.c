// SPDX-License-Identifier: GPL-2.0-only
/*
 * exec.c and zygote_link.c with a fuzzer at the other end of the zygote's
 * socket. No signal is sent; a signal to all processes, or to our own group, is
 * a bug.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>

#include "process/zygote_link.h"

#include "clients.h"

/** fuzz_kill - replaces kill(2) */
static int fuzz_kill(int pid, int sig)
{
	(void)sig;
	if (pid == -1 || pid == 0 || pid == 1)
		abort();
	return 0;
}

#define kill fuzz_kill
#include "target/exec.c"
#include "process/zygote_link.c"

static int theirs = -1;

/** zygote_start - set up a run in which `lklctl exec` works */
void zygote_start(void)
{
	theirs = dup(zygote_open());
	zygote_forked();
}

/** zygote_says - send a report, or close the socket */
void zygote_says(struct input *in)
{
	struct zygote_report r;
	uint8_t len = get8(in);

	if (theirs < 0)
		return;
	fill(in, &r, sizeof(r));
	r.id &= 15;
	if (len == 255) {
		close(theirs);
		theirs = -1;
		return;
	}
	send(theirs, &r, len < sizeof(r) ? len : sizeof(r),
	     MSG_DONTWAIT | MSG_NOSIGNAL);
	if (len & 1)
		exec_reaped(r.value, 0);
}

/** zygote_end - restore the initial state */
void zygote_end(void)
{
	exec_run_ended();
	if (zygote.watched)
		loop_del(&zygote.src);
	else if (zygote.src.fd >= 0)
		close(zygote.src.fd);
	close(theirs);
	theirs = -1;
	zygote.src.fd = -1;
	zygote.pid = 0;
	zygote.watched = false;
	zygote.last_id = 0;
}
