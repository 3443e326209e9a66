// SPDX-License-Identifier: GPL-2.0-only
/* The reports that the target sends to lklhost before its exec. */
#include <errno.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "target/child.h"

/** child_report - report a step to lklhost */
void child_report(int fd, enum child_step step, int value)
{
	struct child_report r = { .step = (int32_t)step, .value = value };

	if (write(fd, &r, sizeof(r)) != (ssize_t)sizeof(r))
		_exit(EXIT_NOT_FOUND);
}

/**
 * child_report_visible - report that a part of the host is visible to the
 * command, which is then not executed with --hide
 */
void child_report_visible(int fd, enum child_step step, int value)
{
	child_report(fd, step, value);
	if (host.hide)
		_exit(EXIT_NOT_FOUND);
}

/** child_read - read exactly @len bytes; false if that fails */
bool child_read(int fd, void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, (char *)buf + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}
