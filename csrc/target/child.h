/* SPDX-License-Identifier: GPL-2.0-only */
/* The target between its fork and its exec, and its reports to lklhost. */
#ifndef LKLHOST_CHILD_H
#define LKLHOST_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXIT_NOT_FOUND	127	/* as in sh(1) */

#define RESOLV_MAX	4096	/* longest path that GO may name */

/*
 * The steps that the child reports, in the order of their execution. With
 * preload, STEP_UNFILTERED follows the steps for mounts and covers.
 */
enum child_step {
	STEP_NETNS,
	STEP_MEETING,	/* trace: the socket is sent with the report */
	STEP_FILTER,	/* value: number of the listener's descriptor */
	STEP_UNFILTERED, /* preloaded: errno that prevented the filter */
	STEP_MOUNTS,
	STEP_TUN,	/* value: minor number of the file system */
	STEP_VIEW,	/* value: 0 if mounted, or a negative errno */
	STEP_COVER,
	STEP_RESOLV,
	STEP_HOSTS,
	STEP_HIDE,
	STEP_COVERS,	/* value: pid of the covers process, or negative errno */
	STEP_USER,	/* value: a negative errno */
	STEP_LIBRARY,
	STEP_EXEC,
};

struct child_report {
	int32_t step;
	int32_t value;	/* >= 0, or a negative errno */
};

/* report.c */
void child_report(int fd, enum child_step step, int value);
void child_report_visible(int fd, enum child_step step, int value);
bool child_read(int fd, void *buf, size_t len);

/* child.c */
__attribute__((noreturn))
void child_main(int sync, int zygote, pid_t parent, char **argv);

/* zygote.c */
void zygote_fork(int sock);

/* exec.c */
void exec_reaped(pid_t pid, int status);

/* filter.c */
int filter_install(void);
int filter_install_trace(void);
int filter_install_plain(void);

#endif
