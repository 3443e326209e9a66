// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parts of lane_mix: several write to one connection at a time.
 *
 * A blocking write() to a TCP socket lets others in while it waits for room
 * (sk_stream_wait_memory()), so not even its own bytes are sure to stand together.
 * What a socket does promise is tried: all bytes arrive, and each writer's in its order.
 */
#include "lane_stream.h"

#define WRITERS	2

/**
 * struct share - what one of several writes to a connection
 * @who: the top bit of each byte; the rest is byte_at()'s
 * @pos: bytes so far
 */
struct share {
	int fd, who;
	uint64_t pos, total;
};

/** ours - the byte of @who at @pos */
static char ours(int who, uint64_t pos)
{
	return (char)((byte_at((uint32_t)who, pos) & 0x7f) | who << 7);
}

/** put - the next @n bytes of @s, whatever interrupts that; 0 or an error */
static int put(struct share *s, char *buf, size_t n)
{
	size_t i, done = 0;

	for (i = 0; i < n; i++)
		buf[i] = ours(s->who, s->pos + i);
	while (done < n) {
		ssize_t k = write(s->fd, buf + done, n - done);

		if (k < 0 && errno != EINTR)
			return errno;
		done += k > 0 ? (size_t)k : 0;
	}
	s->pos += n;
	return 0;
}

/** put_all - a thread that writes all of its share, in large and small pieces */
static void *put_all(void *arg)
{
	struct share *s = arg;
	char *buf = malloc(MOST);

	rnd_seed((uint64_t)s->who + 7);
	while (s->pos < s->total) {
		uint64_t n = below(4) ? 16384 + below(200000) : 1 + below(5000);

		if (n > s->total - s->pos)
			n = s->total - s->pos;
		if (put(s, buf, (size_t)n)) {
			perror("write");
			_exit(1);
		}
	}
	free(buf);
	return NULL;
}

/** sort_out - read to the end, and count what is each writer's, in its order */
static void sort_out(int fd, uint64_t count[WRITERS])
{
	char *buf = malloc(MOST);
	ssize_t n, i;

	while ((n = read(fd, buf, MOST)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			perror("read");
			_exit(1);
		}
		for (i = 0; i < n; i++) {
			int who = (unsigned char)buf[i] >> 7;

			if (buf[i] != ours(who, count[who])) {
				printf("writer %d: not its byte at %llu\n", who, (unsigned long long)count[who]);
				fflush(stdout);
				_exit(1);
			}
			count[who]++;
		}
	}
	free(buf);
}

struct sorter {
	int fd;
	uint64_t count[WRITERS];
};

static void *sort_thread(void *arg)
{
	struct sorter *s = arg;

	sort_out(s->fd, s->count);
	return NULL;
}

/** two_writers - threads that write at a time */
void two_writers(void)
{
	struct share s[WRITERS];
	pthread_t t[WRITERS], reads;
	struct sorter all = { 0 };
	int sv[2], i;

	tcp_pair(AF_INET, sv);
	all.fd = sv[1];
	pthread_create(&reads, NULL, sort_thread, &all);
	for (i = 0; i < WRITERS; i++) {
		s[i] = (struct share){ .fd = sv[0], .who = i, .total = 12 * MB };
		pthread_create(&t[i], NULL, put_all, &s[i]);
	}
	for (i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	shutdown(sv[0], SHUT_WR);
	pthread_join(reads, NULL);
	printf("two writers: %llu and %llu bytes\n", (unsigned long long)all.count[0],
	       (unsigned long long)all.count[1]);
	fflush(stdout);
	close(sv[0]);
	close(sv[1]);
}

static struct share in_handler;
static volatile int handled;

/** write_here - a handler that writes to the connection its thread writes to */
static void write_here(int sig)
{
	static char buf[40000];
	int saved = errno;

	(void)sig;
	if (in_handler.pos < in_handler.total && put(&in_handler, buf, ++handled % 2 ? sizeof(buf) : 100))
		_exit(4);
	errno = saved;
}

static volatile bool enough;

/** pester - a thread that signals another */
static void *pester(void *arg)
{
	while (!enough) {
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
		usleep(500);
	}
	return NULL;
}

/** from_handler - a signal handler writes while its thread does */
void from_handler(void)
{
	struct sigaction sa = { .sa_handler = write_here };
	struct share s = { .who = 0, .total = 16 * MB };
	pthread_t self = pthread_self(), t, reads;
	struct sorter all = { 0 };
	int sv[2];

	tcp_pair(AF_INET, sv);
	s.fd = sv[0];
	all.fd = sv[1];
	in_handler = (struct share){ .fd = sv[0], .who = 1, .total = 4 * MB };
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&reads, NULL, sort_thread, &all);
	pthread_create(&t, NULL, pester, &self);
	put_all(&s);
	enough = true;
	pthread_join(t, NULL);
	signal(SIGUSR1, SIG_IGN);
	shutdown(sv[0], SHUT_WR);
	pthread_join(reads, NULL);
	printf("from a handler: %llu bytes, %d as many as it wrote, %d some\n",
	       (unsigned long long)all.count[0], all.count[1] == in_handler.pos, all.count[1] > 0);
	fflush(stdout);
	close(sv[0]);
	close(sv[1]);
}
