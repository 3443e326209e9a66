// SPDX-License-Identifier: GPL-2.0-only
/*
 * The library in the program (lane/), preloaded, between a bell and what comes behind it.
 *
 * The writer's calls for its lane wait in a seccomp filter, as under lklhost. Who
 * answers them has lklhost's part of include/lane.h, at the worst moment: the writer
 * is just asking what is left in the carrier. What it wrote is put together as lklhost
 * does it, and every byte compared.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lane.h"
#include "tap.h"

#define LIMIT_MS	20000
#define OTHERS		'o'	/* another writer's byte */

static struct lane *lane;
static int memory, sv[2], listener;
static bool others;		/* a byte of another's in front of the bell, else a short write behind it */
static char taken;		/* in the bell's place */
static uint32_t rung;		/* that place */
static int weight, left;	/* of one byte; of what was left when the bell was taken */
static char one[LANE_MIN], two[LANE_MIN], got[4 * LANE_MIN];

static void die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

/** filter - sendto(), and ioctl() with LANE_MAGIC, wait for who has the listener */
static int filter(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)LANE_MAGIC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(f) / sizeof(f[0]), f };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			    SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
}

static void put(const char *buf, size_t n)
{
	if (write(sv[0], buf, n) != (ssize_t)n)
		die("write");
}

static void *writer(void *unused)
{
	int fd = filter();

	(void)unused;
	if (fd < 0)
		die("seccomp");
	__atomic_store_n(&listener, fd, __ATOMIC_RELEASE);
	put(one, LANE_MIN);	/* by the carrier: the lane comes with the second */
	put(one, LANE_MIN);
	put(one, LANE_MIN);	/* by the ring, with a bell */
	if (!others)
		put("sss", 3);
	put(two, LANE_MIN);
	return NULL;
}

/** weigh - what is left in the carrier */
static int weigh(void)
{
	int n;

	if (ioctl(sv[0], SIOCOUTQ, &n))
		die("SIOCOUTQ");
	return n;
}

/** take - @n bytes of the carrier */
static void take(char *buf, size_t n)
{
	if (recv(sv[1], buf, n, MSG_WAITALL | MSG_DONTWAIT) != (ssize_t)n)
		die("recv");
}

/** answer - one call of the writer's, before it is made */
static void answer(const struct seccomp_notif *req)
{
	struct seccomp_notif_resp resp = { .id = req->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
	struct seccomp_notif_addfd add = { .id = req->id, .flags = SECCOMP_ADDFD_FLAG_SEND,
		.srcfd = (uint32_t)memory, .newfd_flags = O_CLOEXEC };
	bool carrier = (int)req->data.args[0] == sv[0];

	if (req->data.nr == SYS_sendto) {
		if (carrier && others && send(sv[0], &(char){ OTHERS }, 1, 0) != 1)
			die("send");
	} else if ((uint32_t)req->data.args[1] == LANE_ATTACH) {
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0)
			die("addfd");
		take(got, 2 * LANE_MIN);
		return;
	} else if (carrier && lane->tx_bell != LANE_NO_BELL) {
		rung = (uint32_t)lane->tx_bell;
		__atomic_store_n(&lane->tx_bell, LANE_NO_BELL, __ATOMIC_SEQ_CST);
		take(&taken, 1);
		left = weigh();
	}
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp))
		die("answer");
}

/** serve - until the writer has ended, which the listener says */
static void serve(void)
{
	struct pollfd p = { .events = POLLIN };
	int i;

	for (i = 0; i < LIMIT_MS && __atomic_load_n(&listener, __ATOMIC_ACQUIRE) < 0; i++)
		poll(NULL, 0, 1);
	p.fd = listener;
	for (;;) {
		struct seccomp_notif req = { 0 };

		if (poll(&p, 1, LIMIT_MS) != 1)
			die("the writer hangs");
		if (!(p.revents & POLLIN))
			return;
		if (!ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &req))
			answer(&req);
		else if (errno != ENOENT && errno != EINTR)
			die("receive");
	}
}

/** order - a large write with a bell, one more, and between them a short one or, @with_others, another's */
static void order(bool with_others)
{
	char want[2 * LANE_MIN + 3], *w = want;
	size_t n = 0;
	pthread_t t;
	ssize_t rest;

	others = with_others;
	listener = -1;
	rung = 0;
	memory = memfd_create("lane", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, LANE_SIZE) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		die("carrier");
	lane = mmap(NULL, LANE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (lane == MAP_FAILED)
		die("mmap");
	put("", 1);
	weight = weigh();
	take(got, 1);
	lane->tx_bell = LANE_NO_BELL;
	lane->tx_idle = 1;
	if (pthread_create(&t, NULL, writer, NULL))
		die("thread");
	serve();
	pthread_join(t, NULL);

	ok(rung == LANE_MIN - 1 && left == weight, "a bell was rung at %u, and what is left when it is read weighs the same",
	   rung);
	memcpy(got, (char *)lane + LANE_TX_AT, rung);
	n = rung;
	got[n++] = taken;
	memcpy(got + n, (char *)lane + LANE_TX_AT + rung, lane->tx_head - rung);
	n += lane->tx_head - rung;
	rest = recv(sv[1], got + n, sizeof(got) - n, MSG_DONTWAIT);
	n += rest > 0 ? (size_t)rest : 0;

	w = mempcpy(w, one, LANE_MIN - 1);
	if (others)
		*w++ = OTHERS;
	*w++ = one[LANE_MIN - 1];
	if (!others)
		w = mempcpy(w, "sss", 3);
	w = mempcpy(w, two, LANE_MIN);
	ok(n == (size_t)(w - want) && !memcmp(got, want, n), "%s: %zu bytes, in order",
	   others ? "another's byte in front of the bell" : "a short write behind the bell", n);
	lane->gone = 1;
	munmap(lane, LANE_SIZE);
	close(memory);
	close(listener);
	close(sv[0]);
	close(sv[1]);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	memset(one, '1', sizeof(one));
	one[LANE_MIN - 1] = 'b';
	memset(two, '2', sizeof(two));
	order(false);
	order(true);
	return tap_end();
}
