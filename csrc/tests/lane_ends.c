// SPDX-License-Identifier: GPL-2.0-only
/* Parts of lane_mix: how a connection ends, and limits of time. */
#include "lane_stream.h"

/** read_end - from @pos to the end of the stream, whose length is not known; bytes */
static uint64_t read_end(int fd, uint32_t seed, uint64_t pos, long *last)
{
	char *buf = malloc(MOST);
	uint64_t begin = pos;
	ssize_t n;

	while ((n = read(fd, buf, some_size())) > 0) {
		struct stream s = { .seed = seed };
		int64_t bad = wrong(buf, seed, pos, (size_t)n);

		if (bad >= 0)
			die("wrong byte", &s, bad);
		pos += (uint64_t)n;
	}
	*last = n ? errno : 0;
	free(buf);
	return pos - begin;
}

/** ends - a shutdown behind much that is under way, and a write after it */
void ends(void)
{
	static char buf[MOST];
	int sv[2], round;
	long last;

	for (round = 0; round < 8; round++) {
		uint64_t total = (1 + below(8)) * 300000, got;
		struct stream w, r;
		pthread_t t;

		tcp_pair(AF_INET, sv);
		r = (struct stream){ .fd = sv[1], .seed = 33 };
		t = writer(&w, sv[0], 33, total);
		if (round & 1)
			msleep(20);	/* what fits is written before anything is read */
		read_on(&r, total);
		pthread_join(t, NULL);
		shutdown(sv[0], SHUT_WR);
		got = read_end(sv[1], 33, total, &last);
		if (got || last)
			printf("end: %llu more, %ld\n", (unsigned long long)got, last);
		signal(SIGPIPE, SIG_IGN);
		if (write(sv[0], buf, sizeof(buf)) != -1 || errno != EPIPE)
			printf("write after shutdown: %s\n", strerror(errno));
		close(sv[0]);
		close(sv[1]);
	}
	printf("ends\n");
	fflush(stdout);
}

/** burst - all is written and the writer gone before anybody reads */
void burst(void)
{
	static char buf[300000];
	int sv[2], round, on = 1;
	long last;

	for (round = 0; round < 6; round++) {
		uint64_t got, done = 0;

		tcp_pair(AF_INET, sv);
		fcntl(sv[0], F_SETFL, O_NONBLOCK);
		while (done < 2 * MB) {
			ssize_t n;

			fill(buf, 34, done, sizeof(buf));
			n = write(sv[0], buf, sizeof(buf));
			if (n <= 0)
				break;
			done += (uint64_t)n;
		}
		setsockopt(sv[0], IPPROTO_TCP, 1, &on, sizeof(on));
		close(sv[0]);
		got = read_end(sv[1], 34, 0, &last);
		if (got != done || last)
			printf("burst: %llu of %llu, %ld\n", (unsigned long long)got,
			       (unsigned long long)done, last);
		close(sv[1]);
	}
	printf("bursts\n");
	fflush(stdout);
}

/** killed - a writer, and a reader, in the middle */
void killed(bool reader)
{
	int sv[2], round, silent;
	long last;

	for (round = 0; round < 10; round++) {
		struct stream w;
		uint64_t got;
		pthread_t t = 0;
		pid_t pid;

		tcp_pair(AF_INET, sv);
		if (reader)
			t = writer(&w, sv[0], 44, 8 * MB);
		pid = fork();
		if (!pid) {
			struct stream s = { .fd = sv[reader], .seed = 44, .reads = reader,
					    .total = 1ull << 40 };

			alarm(30);
			close(sv[!reader]);
			run_stream(&s);
			_exit(0);
		}
		if (!reader)
			close(sv[0]);
		msleep(1 + (int)below(40));
		if (reader) {
			/* What it took is lost; the connection goes on, to its end. */
			char *buf = malloc(MOST);

			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			fcntl(sv[1], F_SETFL, O_NONBLOCK);
			for (silent = 0; w.pos < w.total && !w.err;) {
				struct pollfd p = { sv[1], POLLIN, 0 };

				silent = poll(&p, 1, 100) ? 0 : silent + 1;
				if (silent == 100)
					die("after a killed reader", &w, (int64_t)w.pos);
				while (read(sv[1], buf, MOST) > 0)
					;
			}
			free(buf);
			pthread_join(t, NULL);
			close(sv[0]);
		} else {
			struct stream r = { .fd = sv[1], .seed = 44 };

			read_on(&r, 1 * MB);
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			got = read_end(sv[1], 44, r.pos, &last);
			if (last)
				printf("killed: %llu, %ld\n", (unsigned long long)got, last);
		}
		close(sv[1]);
	}
	printf("killed %s\n", reader ? "readers" : "writers");
	fflush(stdout);
}

/** limits - SO_SNDTIMEO and SO_RCVTIMEO; what was counted as written is what arrives */
void limits(void)
{
	struct timeval tv = { 0, 200000 };
	char *buf = malloc(MOST);
	struct stream r = { .seed = 55 };
	uint64_t done = 0;
	struct timespec a, b;
	int sv[2], rounds = 0;
	ssize_t n;
	double s;

	tcp_pair(AF_INET, sv);
	setsockopt(sv[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	setsockopt(sv[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	while (rounds++ < 200) {
		fill(buf, 55, done, MOST);
		n = write(sv[0], buf, MOST);
		if (n < 0)
			break;
		done += (uint64_t)n;
	}
	printf("full: %s\n", rounds < 200 ? strerrorname_np(errno) : "never");
	r.fd = sv[1];
	read_on(&r, done);
	clock_gettime(CLOCK_MONOTONIC, &a);
	n = read(sv[1], buf, MOST);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	printf("empty: %zd %s, in time %d\n", n, strerrorname_np(errno), s > 0.1 && s < 2);
	fflush(stdout);
	close(sv[0]);
	close(sv[1]);
	free(buf);
}
