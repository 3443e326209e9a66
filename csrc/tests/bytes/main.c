// SPDX-License-Identifier: GPL-2.0-only
/*
 * Received bytes that stay referenced after they have left their connection: in
 * a pipe, in another socket, or in a process outside the run. The value of
 * every byte depends on its connection and position. It is checked after many
 * other bytes have arrived. The program makes its own connections over
 * loopback, and prints the same on any kernel.
 *
 *	bytes WAY		sendfile, splice, tee, relay, vmsplice or exchange
 *	bytes given PATH	hands a connection to `bytes outside PATH`
 *	bytes taken PATH	has that process take it (pidfd_getfd(2))
 *	bytes outside PATH	runs outside; prints "right" if its bytes are correct
 *	bytes zerocopy		prints the results of SO_ZEROCOPY, MSG_ZEROCOPY and similar
 *	bytes soak SEED SECONDS	all ways at once, from several threads
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bytes.h"

#define ROUNDS		24
#define OTHERS		(2 * MB)	/* bytes that arrive in between */


/** begin - make a connection and a thread @fn that sends the stream @seed; stores our end in @to */
void begin(struct stream *to, uint64_t seed, void *(*fn)(void *))
{
	struct stream *from = malloc(sizeof(*from));
	pthread_t t;
	int sv[2];

	tcp_pair(sv);
	*to = (struct stream){ .fd = sv[1], .seed = seed };
	if (!from || fcntl(sv[1], F_SETFL, O_NONBLOCK))
		die("begin", 0);
	*from = (struct stream){ .fd = sv[0], .seed = seed };
	if (pthread_create(&t, NULL, fn, from))
		die("a thread", 0);
	pthread_detach(t);
}

/** in_one_way - hold bytes of one connection while those of another arrive */
static void in_one_way(enum way way)
{
	struct stream to[2];
	struct hold h;
	int i;

	begin(&to[0], 1, sender);
	begin(&to[1], 2, sender);
	hold_open(&h, way);
	take("before", &to[0], 2 * MB + 123);
	take("before", &to[1], 2 * MB + 4567);
	for (i = 0; i < ROUNDS; i++) {
		hold_take(&h, &to[0], HELD);
		take("in between", &to[1], OTHERS);
		hold_check(&h, &to[0]);
		take("after", &to[0], HELD);
	}
	hold_close(&h);
	printf("%s: right\n", way_names[way]);
}

/** way_of - find a way by name; -1 if there is none */
static int way_of(const char *name)
{
	int i;

	for (i = 0; i < WAYS; i++)
		if (!strcmp(name, way_names[i]))
			return i;
	return -1;
}

/** with_path - run given, taken or outside; -1 for any other name */
static int with_path(const char *what, const char *path)
{
	if (!strcmp(what, "outside"))
		return outside(path);
	if (strcmp(what, "given") && strcmp(what, "taken"))
		return -1;
	given(path, !strcmp(what, "taken"));
	return 0;
}

/** usage - print the usage; returns exit status 2 */
static int usage(void)
{
	fprintf(stderr, "bytes WAY | given PATH | taken PATH | outside PATH | zerocopy | soak SEED SECONDS\n");
	return 2;
}

int main(int argc, char **argv)
{
	int ret;

	if (argc == 4 && !strcmp(argv[1], "soak"))
		return soak(strtoull(argv[2], NULL, 0), (unsigned int)atoi(argv[3]));
	alarm(50);
	if (argc == 3) {
		ret = with_path(argv[1], argv[2]);
		return ret < 0 ? usage() : ret;
	}
	if (argc == 2 && !strcmp(argv[1], "zerocopy"))
		return zerocopy();
	ret = argc == 2 ? way_of(argv[1]) : -1;
	if (ret < 0)
		return usage();
	in_one_way((enum way)ret);
	return 0;
}
