// SPDX-License-Identifier: GPL-2.0-only
/*
 * Falls back to plain TCP where MPTCP lacks a socket option.
 *
 * A program that asked for TCP and got MPTCP may set options that MPTCP sockets
 * do not have (net/mptcp/sockopt.c). If the socket is not connected yet and TCP
 * has the option, a TCP socket replaces it in the stack. The new socket gets
 * the same address and the options set so far, which are recorded for this
 * purpose. A line tells the user.
 *
 * A socket that is already in an epoll keeps MPTCP, because the epoll would
 * lose it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "engine/preload/internal.h"

#define NOTES_MAX	32
#define VALUE_MAX	112

/**
 * struct sockopt_note - an option that the program has set
 */
struct sockopt_note {
	int level, name, len;
	char value[VALUE_MAX];
};

#define NOTES_SIZE	(NOTES_MAX * sizeof(struct sockopt_note))

/** fallback_note - record an option of a socket that may have to be replaced */
void fallback_note(struct sock *s, int level, int name, const void *value, int len)
{
	struct sockopt_note *o;

	if (len < 0 || len > VALUE_MAX || s->n_notes >= NOTES_MAX)
		return;
	if (!s->notes) {
		s->notes = pages(NOTES_SIZE);
		if (!s->notes)
			return;
	}
	o = &s->notes[s->n_notes];
	o->level = level;
	o->name = name;
	o->len = len;
	if (!preload_copy(o->value, value, (size_t)len))
		s->n_notes++;
}

/** fallback_forget - discard the recorded options: the socket is not replaced any more */
void fallback_forget(struct sock *s)
{
	if (s->notes)
		munmap(s->notes, NOTES_SIZE);
	s->notes = NULL;
	s->n_notes = 0;
}

/**
 * fallback_to_tcp - replace the socket by TCP after MPTCP refused an option
 * @ret: the error of MPTCP
 *
 * Returns 0 if the socket is now TCP and has the option, else @ret.
 */
long fallback_to_tcp(int fd, int level, int name, const void *value, int len, long ret)
{
	struct sock *s = sock_of(fd);
	struct sockaddr_storage ss;
	int i, sslen = sizeof(ss), old = entries[fd].sfd;
	long sfd, flags, bound;

	if ((ret != -EOPNOTSUPP && ret != -ENOPROTOOPT) || s->refs > 1 ||
	    s->watched)
		return ret;
	flags = STACK(fcntl, old, F_GETFL, 0, 0, 0, 0);
	sfd = STACK(socket, s->domain,
		    SOCK_STREAM | SOCK_CLOEXEC | (flags > 0 ? flags & O_NONBLOCK : 0),
		    IPPROTO_TCP, 0, 0, 0);
	if (sfd < 0)
		return ret;
	for (i = 0; i < s->n_notes; i++)
		STACK(setsockopt, sfd, s->notes[i].level, s->notes[i].name,
		      s->notes[i].value, s->notes[i].len, 0);
	if (STACK(setsockopt, sfd, level, name, value, len, 0)) {
		STACK(close, sfd, 0, 0, 0, 0, 0);
		return ret;
	}
	bound = !STACK(getsockname, old, &ss, &sslen, 0, 0, 0) &&
		((struct sockaddr_in *)&ss)->sin_port;
	/*
	 * The number stays the same, so no other thread sees the change half
	 * done.
	 */
	STACK(dup3, sfd, old, O_CLOEXEC, 0, 0, 0);
	STACK(close, sfd, 0, 0, 0, 0, 0);
	if (bound)
		STACK(bind, old, &ss, sslen, 0, 0, 0);
	s->mptcp = false;
	fallback_forget(s);
	COUNT(fallback, 1);
	warn_line("MPTCP does not support option %d of level %d; this socket uses plain TCP",
		  name, level);
	return 0;
}
