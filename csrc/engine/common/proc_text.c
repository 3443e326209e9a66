// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parse the stack's files in /proc/net, for both engines. This modifies the
 * text.
 */
#include <stdio.h>
#include <string.h>

#include "engine/common/proc_text.h"

/* A socket's state, queue of sent data, and inode. */
static const char mptcp_line[] = " %*u: %*x %*x %*u %*s %*s %x %*x %x:%*x %lu";
static const char tcp_line[] = " %*u: %*s %*s %x %x:%*x %*s %*s %*u %*u %lu";

/**
 * text_orphans - count sockets that still have data to deliver
 * @text: /proc/net/tcp, tcp6 or mptcp
 *
 * Sockets without an owner show inode 0. The state, in hexadecimal as in
 * include/net/tcp_states.h, tells whether data or a FIN may be in transit. The
 * bytes in the queues of all sockets are added to @queued.
 *
 * The TCP sockets of an MPTCP connection do not replace the file mptcp: their
 * queues lack what the connection still holds back, such as its end, and Linux
 * 7.3 shows their inodes after the connection was closed.
 */
unsigned int text_orphans(char *text, uint64_t *queued)
{
	unsigned int n = 0, state, tx;
	unsigned long ino;
	char *line, *save;

	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		/* Only lines of the first kind can be taken for the other. */
		if (sscanf(line, mptcp_line, &state, &tx, &ino) != 3 &&
		    sscanf(line, tcp_line, &state, &tx, &ino) != 3)
			continue;
		*queued += tx;
		if (ino)
			continue;
		switch (state) {
		case 0x01:	/* ESTABLISHED */
		case 0x04:	/* FIN_WAIT1 */
		case 0x08:	/* CLOSE_WAIT */
		case 0x09:	/* LAST_ACK */
		case 0x0b:	/* CLOSING */
			n++;
		}
	}
	return n;
}

/** next_line - the next line, NULL if @line is in the last one */
static char *next_line(char *line)
{
	line = strchr(line, '\n');
	return line ? line + 1 : NULL;
}

/**
 * text_group - write a group of counters as "NAME value\n", as nstat(8) does
 * @text: /proc/net/netstat, which has a line of names and a line of values for
 *	each group
 * @name: name of the group
 */
size_t text_group(char *text, const char *name, char *buf, size_t len)
{
	char *names, *values, *n, *v, *nsave, *vsave;
	size_t at = 0, head = strlen(name);

	for (names = text; names; names = next_line(names))
		if (!strncmp(names, name, head) && names[head] == ':')
			break;
	values = names ? next_line(names) : NULL;
	if (!values)
		return 0;
	values[-1] = '\0';
	values[strcspn(values, "\n")] = '\0';
	n = strtok_r(names + head + 1, " ", &nsave);
	v = strtok_r(values, " ", &vsave);	/* skips the group's name */
	while (n && v && (v = strtok_r(NULL, " ", &vsave))) {
		int ret = snprintf(buf + at, len - at, "%s%s %s\n", name, n, v);

		if (ret < 0 || (size_t)ret >= len - at)
			break;
		at += (size_t)ret;
		n = strtok_r(NULL, " ", &nsave);
	}
	return at;
}
