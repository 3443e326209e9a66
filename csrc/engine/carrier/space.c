// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network namespaces that the target makes: unshare(2), clone(2), setns(2).
 *
 * Theory of operation
 *
 * The host's kernel makes and ends these namespaces. For each of them, the
 * stack's kernel has one, too: a space. It is empty at first, as the host's is.
 * The socket of a caller belongs to the caller's space for its whole life, and
 * so do its connections.
 *
 * The inode number of /proc/TID/ns/net tells the namespace of a caller. The
 * caller sleeps in its call, so the number is right if the call still waits
 * afterwards.
 *
 * A namespace belongs to the run if a thread of the target has been in it. The
 * target starts in a namespace of the run. unshare(2) and clone(2) make new
 * ones, and setns(2) enters only those that have a space. lklhost looks at the
 * namespace of the caller in unshare(2), setns(2), socket(2) and ioctl(2).
 *
 * setns(2): the host's kernel must execute it, because a thread can only change
 * its own namespace. Another thread can exchange the descriptor meanwhile. The
 * calling thread therefore stops before it returns to its program
 * (trace/exit_stop.c). If it is in a namespace that has no space, its process
 * is killed. lklhost looks at its duplicate of the descriptor before, to refuse
 * the call if nobody exchanges it.
 *
 * The end of a namespace: nothing here keeps it, so it ends with its last
 * process, descriptor or mount. The host's kernel then sends a message to
 * @netns_ends (mirror/mirror_helper.c), before another namespace can get the inode
 * number. lklhost reads these messages before it looks for a number. A stack's
 * socket keeps the stack's namespace that it belongs to, also after the end of
 * the space.
 *
 * Messages of rtnetlink can name other namespaces, see space_names.c.
 *
 * If lklhost cannot determine the namespace of a caller, its call fails. In a
 * namespace other than the run's, sockets are also refused to served processes
 * (container.c), under the engine trace, and with other projects' libraries.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/net_namespace.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/list.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/native.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/space.h"
#include "mirror/mirror.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"
#include "trace/trace.h"

#define OWN_NAMESPACE	"/proc/thread-self/ns/net"

#define FIRST_ID	(1 << 20)	/* smaller ones belong to the mirror */
#define INTERRUPTED_MAX	16

/**
 * struct space - a network namespace of the target
 * @ino: inode number of the host's namespace
 * @id: its number in messages about its end
 * @listed: a dump of these numbers contains it
 * @stack: descriptor of the stack's namespace, in the stack
 * @control: sockets of our own in it, for IPv4 and IPv6, or -1
 */
struct space {
	struct list link;
	uint64_t ino;
	int id;
	bool listed;
	int stack, control[2];
};

static struct list spaces = LIST_INIT(spaces);

/*
 * The namespace of the run: inode numbers of that of the target and that of
 * served processes; 0: none. @dev: the file system of namespaces. @fd: that of
 * the target. @stack: descriptor in the stack, or -1.
 */
static struct {
	uint64_t target, served;
	dev_t dev;
	int fd, stack;
} home = { .stack = -1 };

static bool away;		/* space_enter() was called */

/*
 * Messages about namespaces that have ended. @lost: some could not be sent.
 * @seq: number of the last request for a list. @id: number of the next space
 */
static struct {
	struct source src;
	bool lost;
	uint32_t seq;
	int id;
} netns_ends = { .src.fd = -1, .id = FIRST_ID };

static unsigned int interrupted_calls;	/* calls in a row, see let_run() */

/** namespace_of - inode number of a thread's network namespace, or a negative errno */
static int64_t namespace_of(pid_t tid)
{
	char path[48], text[48];
	unsigned long long ino;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", tid);
	n = readlink(path, text, sizeof(text) - 1);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	return sscanf(text, "net:[%llu]", &ino) == 1 && ino ? (int64_t)ino :
							      -EINVAL;
}

/** keep - open the namespace of a thread */
static int keep(pid_t tid)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/**
 * space_note - set @ino to the inode number of a namespace
 *
 * No other namespace gets the number, because @fd stays open.
 */
static int space_note(int fd, uint64_t *ino)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	*ino = st.st_ino;
	home.dev = st.st_dev;
	return 0;
}

/** space_free - end a space */
static void space_free(struct space *s)
{
	size_t i;

	for (i = 0; i < 2; i++)
		if (s->control[i] >= 0)
			st_close(s->control[i]);
	if (s->stack >= 0)
		st_close(s->stack);
	list_del(&s->link);
	free(s);
}

/** message_id - the number in a message about a namespace, or -1 */
static int message_id(const struct nlmsghdr *h)
{
	const size_t head = NLMSG_SPACE(sizeof(struct rtgenmsg));
	const char *p = (const char *)h + head;
	size_t len = h->nlmsg_len > head ? h->nlmsg_len - head : 0, n;
	struct nlattr a;
	int id;

	for (; len >= sizeof(a); p += n, len -= n) {
		memcpy(&a, p, sizeof(a));
		if (a.nla_len < sizeof(a) || a.nla_len > len)
			break;
		if (a.nla_type == NETNSA_NSID && a.nla_len >= sizeof(a) + sizeof(id)) {
			memcpy(&id, p + sizeof(a), sizeof(id));
			return id;
		}
		n = NLA_ALIGN((size_t)a.nla_len);
		n = n < len ? n : len;
	}
	return -1;
}

/**
 * spaces_end - end the space whose number is @id
 * @only_unlisted: end all that the dump did not contain instead
 */
static void spaces_end(int id, bool only_unlisted)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &spaces) {
		struct space *s = container_of(pos, struct space, link);

		if (only_unlisted ? !s->listed : s->id == id)
			space_free(s);
	}
}

/** list_begin - ask for the numbers of all namespaces that exist */
static int list_begin(void)
{
	const struct {
		struct nlmsghdr h;
		struct rtgenmsg g;
	} m = { .h = { .nlmsg_len = sizeof(m), .nlmsg_type = RTM_GETNSID,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		       .nlmsg_seq = ++netns_ends.seq } };
	struct list *pos;

	list_for_each(pos, &spaces)
		container_of(pos, struct space, link)->listed = false;
	return send(netns_ends.src.fd, &m, sizeof(m), MSG_DONTWAIT) < 0 ? -errno : 0;
}

/** message - handle a message about namespaces; returns true at the end of a dump */
static bool message(const struct nlmsghdr *h)
{
	int id = message_id(h);
	struct list *pos;

	switch (h->nlmsg_type) {
	case RTM_DELNSID:
		spaces_end(id, false);
		break;
	case RTM_NEWNSID:
		list_for_each(pos, &spaces) {
			struct space *s = container_of(pos, struct space, link);

			s->listed |= h->nlmsg_seq == netns_ends.seq && s->id == id;
		}
		break;
	case NLMSG_DONE:
		if (h->nlmsg_seq != netns_ends.seq)
			break;
		spaces_end(0, true);
		return true;
	}
	return false;
}

/**
 * spaces_look - end the spaces whose namespaces have ended
 *
 * If the host's kernel could not send a message, we ask for a list. Returns a
 * negative errno if we cannot know which namespaces have ended.
 */
static int spaces_look(void)
{
	static char buf[32768] __attribute__((aligned(8)));
	bool dump = false;
	ssize_t n;

	for (;;) {
		struct nlmsghdr *h = (struct nlmsghdr *)buf;

		if (netns_ends.lost && !dump) {
			if (list_begin())
				return -ENOBUFS;
			dump = true;
			netns_ends.lost = false;
		}
		n = recv(netns_ends.src.fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) {
			netns_ends.lost = dump;	/* the dump did not end */
			return dump ? -ENOBUFS : 0;
		}
		if (n < 0 && dump) {
			netns_ends.lost = true;
			return -ENOBUFS;
		}
		netns_ends.lost = n < 0;
		for (; n > 0 && NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n))
			if (message(h))
				dump = false;
	}
}

/** spaces_ended - the host's kernel has sent a message */
static void spaces_ended(struct source *src, uint32_t events)
{
	(void)src;
	(void)events;
	spaces_look();
}

/** spaces_watch - prepare to receive messages about the ends of namespaces */
static int spaces_watch(void)
{
	const struct sockaddr_nl nl = { .nl_family = AF_NETLINK,
					.nl_groups = 1u << (RTNLGRP_NSID - 1) };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&nl, sizeof(nl)))
		return -errno;
	netns_ends.src.fn = spaces_ended;
	netns_ends.src.fd = fd;
	return loop_add(&netns_ends.src, EPOLLIN);
}

/**
 * space_init - note and keep the namespace of the target, which waits for its start
 *
 * A kernel without network namespaces has no such file. If we could not make a
 * namespace and may not see that of the target, it cannot make one either.
 */
int space_init(void)
{
	int fd;

	if (host.preload)
		return 0;
	fd = keep(host.target_pid);
	if (fd < 0)
		return fd == -ENOENT || host.shared_netns ? 0 : fd;
	home.fd = fd;
	if (host.private_netns)
		(void)spaces_watch();	/* spaces are refused without it */
	return space_note(fd, &home.target);
}

/** space_serve - note and keep the namespace of served processes */
int space_serve(int netns)
{
	int fd = fcntl(netns, F_DUPFD_CLOEXEC, 0);

	return fd < 0 ? -errno : space_note(fd, &home.served);
}

/** own_namespace - open the namespace of our task in the stack */
static int own_namespace(void)
{
	return (int)ST(SYS_openat, AT_FDCWD, OWN_NAMESPACE,
		       O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

/**
 * space_leave - use the run's namespace of the stack again
 *
 * All that follows would be in the wrong namespace if this failed. Only a lack
 * of memory that ends the kernel anyway can be the reason.
 */
void space_leave(void)
{
	if (away && ST(SYS_setns, home.stack, CLONE_NEWNET, 0, 0, 0, 0) &&
	    stack_alive())
		abort();
	away = false;
}

/**
 * space_enter - let the following calls in the stack use the space
 * @s: the space; NULL: the run's namespace
 *
 * Returns 0 or a negative errno.
 */
int space_enter(const struct space *s)
{
	int ret = s ? (int)ST(SYS_setns, s->stack, CLONE_NEWNET, 0, 0, 0, 0) : 0;

	away = s && !ret;
	return ret;
}

/**
 * namespaces_permit - permit as many namespaces in the stack as memory permits
 *
 * The stack's kernel would permit 500 in 256 MB, as many as half its threads.
 */
static void namespaces_permit(void)
{
	static const char many[] = "1000000";
	int fd = (int)ST(SYS_openat, AT_FDCWD, "/proc/sys/user/max_net_namespaces",
			 O_WRONLY | O_CLOEXEC, 0, 0, 0);

	if (fd < 0)
		return;
	ST(SYS_write, fd, many, sizeof(many) - 1, 0, 0, 0);
	st_close(fd);
}

/** home_stack - the descriptor in the stack of the run's namespace */
static int home_stack(void)
{
	if (home.stack < 0) {
		home.stack = own_namespace();
		namespaces_permit();
	}
	return home.stack;
}

/** stack_namespace - make a namespace in the stack; returns its descriptor */
static int stack_namespace(void)
{
	int ret = home_stack();

	if (ret < 0)
		return ret;
	ret = (int)ST(SYS_unshare, CLONE_NEWNET, 0, 0, 0, 0, 0);
	if (ret)
		return ret;
	away = true;
	ret = own_namespace();
	space_leave();
	return ret;
}

/** space_watch - have the end of the namespace @fd announced */
static int space_watch(struct space *s, int fd)
{
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || st.st_ino != s->ino)
		return -ESRCH;
	return maker_watch(fd, s->id);
}

/**
 * space_make - make the space of a thread
 * @ino: inode number of its namespace
 */
static int space_make(pid_t tid, uint64_t ino, struct space **space)
{
	struct space *s;
	int ret, fd;

	if (memory_full())
		return -ENOBUFS;
	if (netns_ends.src.fd < 0)
		return -EOPNOTSUPP;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->ino = ino;
	s->id = netns_ends.id++;
	s->stack = s->control[0] = s->control[1] = -1;
	list_add_tail(&s->link, &spaces);
	ret = s->stack = stack_namespace();
	fd = ret < 0 ? ret : keep(tid);
	ret = space_watch(s, fd);
	if (fd >= 0)
		close(fd);
	if (ret < 0) {
		space_free(s);
		return ret;
	}
	*space = s;
	return 0;
}

/** refuse - refuse a caller in another network namespace */
static int refuse(const struct call *c, const char *why)
{
	static bool told;

	if (!told)
		warn_user("%s (pid %d): sockets in a network namespace that it has made are refused: %s",
			  task_comm(c->task), task_tgid(c->task), why);
	told = true;
	return -ENETDOWN;
}

/**
 * space_known - find the space of a namespace that exists
 *
 * Returns 0 with NULL for the run's namespace, or a negative errno: -ENOENT if
 * the namespace does not belong to the run.
 */
static int space_known(uint64_t ino, struct space **space)
{
	struct list *pos;
	int ret;

	*space = NULL;
	if (ino == home.target)
		return 0;
	ret = netns_ends.src.fd < 0 ? -EOPNOTSUPP : spaces_look();
	if (ret)
		return ret;
	list_for_each(pos, &spaces) {
		struct space *s = container_of(pos, struct space, link);

		if (s->ino == ino) {
			*space = s;
			return 0;
		}
	}
	return -ENOENT;
}

/**
 * space_find - find or make the space of a thread of the target
 * @ino: inode number of its namespace
 */
static int space_find(pid_t tid, uint64_t ino, struct space **space)
{
	int ret = space_known(ino, space);

	if (stack->abi != CTL_ABI_NATIVE && ino != home.target)
		return -EOPNOTSUPP;
	return ret == -ENOENT ? space_make(tid, ino, space) : ret;
}

/**
 * space_of - find or make the space of a caller
 * @space: set to the space; NULL: the caller is in the run's namespace
 *
 * Returns 0, or the negative errno that answers the call.
 */
int space_of(struct call *c, struct space **space)
{
	uint64_t own = c->served ? home.served : home.target;
	int64_t ino = own ? namespace_of(c->pid) : 0;
	int ret;

	*space = NULL;
	if (own && !call_valid(c))
		return -ESRCH;
	if (ino == (int64_t)own)
		return 0;
	if (ino == -EACCES)
		return call_out_of_reach(c, EPERM);
	if (ino < 0)
		return refuse(c, strerror((int)-ino));
	if (c->served)
		return refuse(c, "it belongs to a container");
	if (host.trace)
		return refuse(c, "the engine trace does not support them; use --engine supervise");
	ret = space_find(c->pid, (uint64_t)ino, space);
	if (!ret && call_valid(c))
		return 0;
	*space = NULL;
	if (ret == -EMFILE || ret == -ENFILE)
		return call_no_room(c);
	if (!ret || ret == -ENOBUFS)
		return ret ? ret : -ESRCH;
	return refuse(c, strerror(-ret));
}

/**
 * space_enter_of - enter the space of a thread, which waits for an answer
 *
 * Returns 0 if it is in the run's namespace, 1, or a negative errno. space_leave()
 * must follow.
 */
int space_enter_of(pid_t tid)
{
	int64_t ino = home.target ? namespace_of(tid) : 0;
	struct space *space;
	int ret;

	if (ino == (int64_t)home.target || (ino > 0 && ino == (int64_t)home.served))
		return 0;
	ret = ino < 0 ? (int)ino : space_find(tid, (uint64_t)ino, &space);
	if (!ret)
		ret = space_enter(space);
	return ret ? ret : 1;
}

/** space_control_fd - get a socket of our own in a space */
int space_control_fd(struct space *s, int domain)
{
	int *fd = &s->control[domain == AF_INET6], ret;

	if (*fd >= 0)
		return *fd;
	ret = space_enter(s);
	if (ret)
		return ret;
	*fd = (int)st_socket(domain, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			     0);
	space_leave();
	return *fd;
}

/** setns_refuse - refuse to enter a network namespace */
static int64_t setns_refuse(const struct call *c, const char *why)
{
	static bool told;

	if (!told)
		warn_user("%s (pid %d): entering a network namespace is refused: %s",
			  task_comm(c->task), task_tgid(c->task), why);
	told = true;
	return -EPERM;
}

/**
 * file_namespace - the network namespace of a file
 *
 * Returns its inode number, 0 if it is a namespace of another kind, or -EINVAL.
 */
static int64_t file_namespace(int fd)
{
	struct stat st;

	if (!fd_stat(fd, &st) || st.st_dev != home.dev)
		return -EINVAL;
	return ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET ? (int64_t)st.st_ino : 0;
}

/**
 * entered_by - the network namespace that setns(2) would enter
 * @fd: its descriptor, or a pidfd
 * @type: the type that is passed to setns(2)
 *
 * Returns its inode number, 0 if the call is about a namespace of another kind,
 * or a negative errno.
 */
static int64_t entered_by(int fd, int type)
{
	int64_t ino = file_namespace(fd);
	pid_t pid = ino < 0 && type ? pidfd_pid(fd) : 0;

	if (pid > 0)
		return namespace_of(pid);
	return (!ino && type) || (ino > 0 && type && type != CLONE_NEWNET) ? -EINVAL : ino;
}

/** entered - after setns(2): end a process that has left the run's namespaces */
static bool entered(pid_t tid)
{
	int64_t ino = namespace_of(tid);
	struct space *space;

	if (ino > 0 && !space_known((uint64_t)ino, &space))
		return true;
	kill(tid, SIGKILL);
	warn_user("killed the process of thread %d: it exchanged a descriptor during setns() to enter a network namespace that does not belong to the run",
		  tid);
	return false;
}

/** unshared - after unshare(2): make the space of the new namespace */
static bool unshared(pid_t tid)
{
	int64_t ino = namespace_of(tid);
	struct space *space;

	if (ino > 0)
		(void)space_find(tid, (uint64_t)ino, &space);
	return true;
}

/**
 * let_run - let the host's kernel execute a call, and look at the thread after it
 * @may_run: see trace_exit_stop()
 *
 * Returns CALL_ANSWERED, or a negative errno; the call then still waits. If
 * the stop interrupts each call, the host's kernel is too old.
 */
static int64_t let_run(struct call *c, bool (*may_run)(pid_t tid))
{
	int ret;

	if (interrupted_calls == INTERRUPTED_MAX)
		return -EOPNOTSUPP;
	ret = trace_exit_stop(c->pid, may_run);
	if (ret)
		return ret;
	if (!call_valid(c)) {
		trace_exit_pass(c->pid);
		return CALL_ANSWERED;
	}
	if (call_answer(c, call_native(NATIVE_NAMESPACE)))
		interrupted_calls = 0;
	else
		interrupted_calls++;
	return CALL_ANSWERED;
}

/** space_setns - handle setns(2) with the type of a network namespace, or none */
int64_t space_setns(struct call *c)
{
	struct space *space;
	int64_t ino, ret;

	if (c->served || host.trace || !home.target)
		return setns_refuse(c, c->served ? "the program belongs to a container" :
				    "it needs --engine supervise");
	/* The caller may come back to its namespace. */
	ret = space_of(c, &space);
	if (!ret)
		ret = call_dup(c, (int)c->args[0]);
	if (ret)
		return ret;
	ino = entered_by(c->dup, (int)c->args[1]);
	if (ino == -EINVAL)
		return ino;
	if (ino && (ino < 0 || space_known((uint64_t)ino, &space)))
		return setns_refuse(c, "it does not belong to the run, or no program in it has made a socket; use another lklrun for another stack");
	ret = let_run(c, entered);
	if (ret == -EOPNOTSUPP)
		return setns_refuse(c, "it needs Linux 5.19");
	if (ret == -EPERM)
		return setns_refuse(c, "lklhost cannot trace the program, because another process traces it or the host permits no tracing");
	return ret < 0 && ret != CALL_ANSWERED ? setns_refuse(c, strerror((int)-ret)) : ret;
}

/**
 * space_unshare - handle unshare(2) of a network namespace
 *
 * Without a space, the namespace gets one when a program in it makes a socket.
 */
int64_t space_unshare(struct call *c)
{
	if (c->served || !home.target ||
	    let_run(c, unshared) != CALL_ANSWERED)
		return call_native(NATIVE_NAMESPACE);
	return CALL_ANSWERED;
}

/**
 * space_stack_fd - the descriptor in the stack of a namespace of the host
 *
 * Returns a negative errno if @fd is no network namespace of the run.
 */
int space_stack_fd(int fd)
{
	int64_t ino = file_namespace(fd);
	struct space *space;
	int ret = ino > 0 ? space_known((uint64_t)ino, &space) : -EINVAL;

	if (ret)
		return ret;
	return space ? space->stack : home_stack();
}

/** space_number - the number of a namespace of the target; 0: the run's, or a negative errno */
int space_number(uint64_t ino)
{
	struct space *space;
	int ret = space_known(ino, &space);

	return ret || !space ? ret : space->id;
}

/** space_enter_number - enter the namespace with that number, until space_leave() */
int space_enter_number(int number)
{
	struct list *pos;
	int ret = spaces_look();

	if (ret)
		return ret;
	list_for_each(pos, &spaces) {
		struct space *s = container_of(pos, struct space, link);

		if (s->id == number)
			return space_enter(s);
	}
	return -ENOENT;
}

/** space_list - write the inode numbers of the target's namespaces; returns their number */
size_t space_list(uint64_t *inos, size_t room)
{
	struct list *pos;
	size_t n = 0;

	if (netns_ends.src.fd >= 0)
		(void)spaces_look();
	list_for_each(pos, &spaces)
		if (n < room)
			inos[n++] = container_of(pos, struct space, link)->ino;
	return n;
}

/** space_open - open the namespace of the host that a process is in; 0: the run's */
int space_open(pid_t pid)
{
	int fd = pid ? keep(pid) : fcntl(home.fd, F_DUPFD_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

/** space_stop - end all spaces */
void space_stop(void)
{
	while (!list_empty(&spaces))
		space_free(container_of(spaces.next, struct space, link));
}
