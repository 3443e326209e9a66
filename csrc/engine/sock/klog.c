// SPDX-License-Identifier: GPL-2.0-only
/*
 * syslog(2): the target reads the log of the stack, not that of the host.
 *
 * dmesg(1) prefers /dev/kmsg. That file and /proc/kmsg are covered, see
 * hide_services.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/lklhost.h"
#include "engine/call/call.h"
#include "engine/call/native.h"
#include "engine/sock/sock.h"
#include "stack/stack.h"

/* Actions from include/linux/syslog.h. */
#define ACTION_CLOSE		0
#define ACTION_OPEN		1
#define ACTION_READ_ALL		3
#define ACTION_READ_CLEAR	4
#define ACTION_CLEAR		5
#define ACTION_SIZE_UNREAD	9
#define ACTION_SIZE_BUFFER	10

#define READ_MAX	(1 << 20)

/**
 * read_log - copy the stack's log to the target
 *
 * With ACTION_READ_CLEAR, the log is then cleared.
 */
static int64_t read_log(const struct call *c, int action)
{
	int len = (int)c->args[2];
	int64_t ret;
	long n;
	char *buf;

	if (!c->args[1] || len < 0)
		return -EINVAL;
	if (len > READ_MAX)
		len = READ_MAX;
	buf = malloc((size_t)len + 1);
	if (!buf)
		return -ENOMEM;
	n = st_call(SYS_syslog, action, (long)buf, len, 0, 0, 0);
	ret = n > 0 ? mem_write(c, c->args[1], buf, (size_t)n) : 0;
	free(buf);
	return ret ? ret : n;
}

/**
 * klog_call - handle syslog(2)
 *
 * Actions that wait are refused. Actions that change the output of the stack to
 * its console are refused too, because this output is the log of the run.
 */
int64_t klog_call(const struct call *c)
{
	int action = (int)c->args[0];

	if (!strcmp(host.abi, "host"))
		return call_native(NATIVE_SAME_STACK);
	switch (action) {
	case ACTION_CLOSE:
	case ACTION_OPEN:
		return 0;
	case ACTION_READ_ALL:
	case ACTION_READ_CLEAR:
		return read_log(c, action);
	case ACTION_CLEAR:
	case ACTION_SIZE_UNREAD:
	case ACTION_SIZE_BUFFER:
		return st_call(SYS_syslog, action, 0, 0, 0, 0, 0);
	}
	return -EPERM;
}
