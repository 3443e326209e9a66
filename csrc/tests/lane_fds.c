// SPDX-License-Identifier: GPL-2.0-only
/* Parts of lane_mix: a connection with several descriptors, in several processes. */
#include "lane_stream.h"

/** in_turns - parent and child read the same connection, now one, now the other */
void in_turns(void)
{
	struct stream w, *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const uint64_t total = 24 * MB, turn = total / 16;
	int sv[2], to_child[2], to_parent[2], i;
	pthread_t t;
	pid_t pid;
	char c = 0;

	tcp_pair(AF_INET, sv);
	if (pipe(to_child) || pipe(to_parent))
		return;
	*r = (struct stream){ .fd = sv[1], .seed = 77 };
	t = writer(&w, sv[0], 77, total);
	read_on(r, turn);
	pid = fork();
	if (!pid) {
		alarm(30);
		rnd_seed(1);
		while (read(to_child[0], &c, 1) == 1 && c) {
			read_on(r, r->pos + turn);
			if (write(to_parent[1], "x", 1) != 1)
				break;
		}
		_exit(0);
	}
	for (i = 1; i < 16; i += 2) {
		c = 1;
		if (write(to_child[1], &c, 1) != 1 || read(to_parent[0], &c, 1) != 1)
			break;
		if (i < 15)
			read_on(r, r->pos + turn);
	}
	c = 0;
	if (write(to_child[1], &c, 1) != 1)
		return;
	end_status("in turns, child", pid);
	pthread_join(t, NULL);
	printf("in turns: %llu bytes\n", (unsigned long long)r->pos);
	for (i = 0; i < 2; i++) {
		close(sv[i]);
		close(to_child[i]);
		close(to_parent[i]);
	}
	munmap(r, sizeof(*r));
}

/** moved - dup() in between, and dup2() onto a number that meant another stream */
void moved(void)
{
	struct stream w[2], r[2];
	int sv[2][2], i;
	pthread_t t[2];

	for (i = 0; i < 2; i++) {
		tcp_pair(AF_INET, sv[i]);
		t[i] = writer(&w[i], sv[i][0], (uint32_t)(50 + i), 16 * MB);
		r[i] = (struct stream){ .fd = sv[i][1], .seed = (uint32_t)(50 + i) };
		read_on(&r[i], 4 * MB);
	}
	r[0].fd = dup(sv[0][1]);
	read_on(&r[0], 8 * MB);
	/* The numbers change places. */
	i = dup(sv[0][1]);
	dup2(sv[1][1], sv[0][1]);
	dup2(i, sv[1][1]);
	close(i);
	close(r[0].fd);
	r[0].fd = sv[1][1];
	r[1].fd = sv[0][1];
	for (i = 0; i < 2; i++) {
		read_on(&r[i], 16 * MB);
		pthread_join(t[i], NULL);
	}
	for (i = 0; i < 4; i++)
		close(sv[i / 2][i % 2]);
	printf("moved: %llu %llu\n", (unsigned long long)r[0].pos,
	       (unsigned long long)r[1].pos);
	fflush(stdout);
}

/** pass - a descriptor over a unix socket */
static void pass(int over, int fd)
{
	char ctl[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { "f", 1 };
	struct msghdr mh = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl,
			     .msg_controllen = sizeof(ctl) };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	sendmsg(over, &mh, 0);
}

/** passed - the reverse */
static int passed(int over)
{
	char ctl[CMSG_SPACE(sizeof(int))] = { 0 }, c;
	struct iovec v = { &c, 1 };
	struct msghdr mh = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl,
			     .msg_controllen = sizeof(ctl) };
	int fd = -1;

	if (recvmsg(over, &mh, 0) == 1 && CMSG_FIRSTHDR(&mh))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&mh)), sizeof(fd));
	return fd;
}

/** given_away - read a part, then another program without the library has it */
void given_away(bool rights)
{
	char seed[16], pos[32];
	struct stream w, r;
	int sv[2], over[2];
	pthread_t t;
	pid_t pid;

	tcp_pair(AF_INET, sv);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, over))
		return;
	fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	t = writer(&w, sv[0], 91, 20 * MB);
	r = (struct stream){ .fd = sv[1], .seed = 91 };
	pid = rights ? fork() : 1;
	if (!pid) {
		alarm(30);
		close(sv[0]);
		close(sv[1]);
		dup2(passed(over[1]), 0);
		snprintf(pos, sizeof(pos), "%u", 5 * MB);
		execl(rest, rest, "91", pos, NULL);
		_exit(127);
	}
	read_on(&r, 5 * MB);
	if (rights) {
		pass(over[0], sv[1]);
	} else {
		snprintf(seed, sizeof(seed), "%d", 91);
		snprintf(pos, sizeof(pos), "%u", 5 * MB);
		pid = fork();
		if (!pid) {
			alarm(30);
			close(sv[0]);
			dup2(sv[1], 0);
			close(sv[1]);
			execl(rest, rest, seed, pos, NULL);
			_exit(127);
		}
	}
	close(sv[1]);
	pthread_join(t, NULL);
	shutdown(sv[0], SHUT_WR);
	close(sv[0]);
	end_status(rights ? "by SCM_RIGHTS" : "by exec", pid);
	close(over[0]);
	close(over[1]);
}
