/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The zygote (target/zygote.c), from lklhost's side: its messages, one packet
 * each, and its pid.
 */
#ifndef LKLHOST_ZYGOTE_LINK_H
#define LKLHOST_ZYGOTE_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Standard input, output, error and the request; at most FD_PASS_MAX. */
#define ZYGOTE_FDS	4

/* lklhost to zygote, with ZYGOTE_FDS descriptors in SCM_RIGHTS. */
struct zygote_request {
	uint32_t id;
};

enum zygote_what {
	ZYGOTE_READY,	/* value: the zygote's pid; id 0 */
	ZYGOTE_STARTED,	/* value: the program's pid; before anything can fail */
	ZYGOTE_FORK,	/* cannot fork; value: a negative errno */
	ZYGOTE_CWD,	/* cannot enter its directory: a negative errno */
	ZYGOTE_COMMAND,	/* cannot execute it: a negative errno */
};

/* zygote and its children to lklhost */
struct zygote_report {
	uint32_t id;
	int32_t what;
	int32_t value;
};

/**
 * struct zygote_ops - callbacks of the code that starts programs through the
 * zygote
 * @reported: a report of the zygote, or of a program that it started
 * @gone: the zygote has ended
 */
struct zygote_ops {
	void (*reported)(const struct zygote_report *r);
	void (*gone)(void);
};

int zygote_open(void);
void zygote_forked(void);
int zygote_watch(const struct zygote_ops *ops);
uint32_t zygote_next_id(void);
int zygote_send(uint32_t id, const int *fds);
void zygote_reaped(pid_t pid);
void zygote_reap(void);
pid_t zygote_idle(void);
pid_t zygote_pid(void);
bool zygote_is(pid_t pid);

#endif
