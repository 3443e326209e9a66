// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network namespaces that the target makes: unshare(2), clone(2).
 *
 * Theory of operation
 *
 * The host's kernel makes and ends these namespaces. For each of them that
 * makes a socket, the stack's kernel has one, too: a space. It is empty at
 * first, as the host's is. The socket of a caller belongs to the caller's space
 * for its whole life, and so do its connections.
 *
 * The inode number of /proc/TID/ns/net tells the namespace of a caller. The
 * caller sleeps in its call, and only a thread itself can change its namespace,
 * so the number is right if the call still waits afterwards. While a space
 * exists, a descriptor keeps the host's namespace, so no other one can get its
 * number.
 *
 * setns(2) into a network namespace is refused. A namespace without a thread can
 * therefore never be used again, and its space ends. We watch the end of one
 * thread in it, the member. If the member has ended, or has left, we look for
 * another one among all descendants of lklhost. A stack's socket keeps the
 * stack's namespace that it belongs to, also after the end of the space.
 *
 * Messages of rtnetlink can name other namespaces by a pid, by a descriptor or by
 * a number. For the stack's kernel these would be its own pids and descriptors:
 * those of lklhost, which has all spaces. space_references() therefore refuses
 * them.
 *
 * If lklhost cannot determine the namespace of a caller, its call fails. In a
 * namespace other than the run's, sockets are also refused to served processes
 * (container.c), under the engine trace, and with other projects' libraries.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/list.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/space.h"
#include "process/process.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#ifndef PIDFD_THREAD			/* Linux 6.9, include/uapi/linux/pidfd.h */
#define PIDFD_THREAD	O_EXCL
#endif
#define MEMBERS_MAX	8192
#define OWN_NAMESPACE	"/proc/thread-self/ns/net"
#define PEER_INFO	1	/* of veth, vxcan and netkit: a link */

/**
 * struct space - a network namespace of the target
 * @ino: inode number of the host's namespace
 * @host: descriptor of the host's namespace
 * @stack: descriptor of the stack's namespace, in the stack
 * @control: sockets of our own in it, for IPv4 and IPv6, or -1
 * @member: pidfd of @tid, or of its process
 * @tid: a thread that is in the host's namespace
 */
struct space {
	struct list link;
	uint64_t ino;
	int host, stack, control[2];
	struct source member;
	pid_t tid;
};

static struct list spaces = LIST_INIT(spaces);

/*
 * The namespace of the run: inode numbers of that of the target and that of
 * served processes; 0: none. @stack: descriptor in the stack, or -1.
 */
static struct {
	uint64_t target, served;
	int stack;
} home = { .stack = -1 };

static bool away;		/* space_enter() was called */

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

/**
 * keep - open the namespace of a thread
 *
 * No other namespace gets its number while the descriptor is open.
 */
static int keep(pid_t tid)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/** space_note - set @ino to the inode number of a namespace; @fd stays open */
static int space_note(int fd, uint64_t *ino)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	*ino = st.st_ino;
	return 0;
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
	return space_note(fd, &home.target);
}

/** space_serve - note and keep the namespace of served processes */
int space_serve(int netns)
{
	int fd = fcntl(netns, F_DUPFD_CLOEXEC, 0);

	return fd < 0 ? -errno : space_note(fd, &home.served);
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
	if (s->member.fd >= 0) {
		int fd = s->member.fd;

		loop_del(&s->member);
		close(fd);
	}
	if (s->host >= 0)
		close(s->host);
	list_del(&s->link);
	loop_free_later(s);
}

static void member_ended(struct source *src, uint32_t events);

/**
 * member_set - watch thread @tid of process @pid if it is in the space
 *
 * Before Linux 6.9, we notice only the end of its process.
 */
static bool member_set(struct space *s, pid_t pid, pid_t tid)
{
	int fd;

	if (namespace_of(tid) != (int64_t)s->ino)
		return false;
	fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	if (fd < 0)
		fd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* The number may have become that of another thread. */
	if (fd >= 0 && namespace_of(tid) == (int64_t)s->ino) {
		if (s->member.fd >= 0) {
			int old = s->member.fd;

			loop_del(&s->member);
			close(old);
		}
		s->tid = tid;
		s->member.fn = member_ended;
		s->member.fd = fd;
		if (!loop_add(&s->member, EPOLLIN))
			return true;
		s->member.fd = -1;
	}
	if (fd >= 0)
		close(fd);
	return false;
}

/** member_in - look for a member among the threads of process @pid */
static bool member_in(struct space *s, pid_t pid)
{
	bool found = member_set(s, pid, pid);
	struct dirent *d;
	char path[48];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = found ? NULL : opendir(path);
	while (dir && !found && (d = readdir(dir)))
		found = d->d_name[0] != '.' && atoi(d->d_name) != pid &&
			member_set(s, pid, atoi(d->d_name));
	if (dir)
		closedir(dir);
	return found;
}

/** member_find - look for another member */
static bool member_find(struct space *s)
{
	static pid_t pids[MEMBERS_MAX];
	size_t n = tree_list(pids, MEMBERS_MAX), i;

	for (i = 0; i < n; i++)
		if (member_in(s, pids[i]))
			return true;
	return false;
}

/**
 * member_ended - a member has ended: find another one, or end the space
 *
 * We look twice: a thread may have started another one during the first time.
 */
static void member_ended(struct source *src, uint32_t events)
{
	struct space *s = container_of(src, struct space, member);

	(void)events;
	if (!member_find(s) && !member_find(s))
		space_free(s);
}

/** members_look - find spaces whose member has left */
static void members_look(void)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &spaces) {
		struct space *s = container_of(pos, struct space, link);

		if (namespace_of(s->tid) != (int64_t)s->ino)
			member_ended(&s->member, 0);
	}
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

/** stack_namespace - make a namespace in the stack; returns its descriptor */
static int stack_namespace(void)
{
	int ret;

	if (home.stack < 0)
		home.stack = own_namespace();
	if (home.stack < 0)
		return home.stack;
	ret = (int)ST(SYS_unshare, CLONE_NEWNET, 0, 0, 0, 0, 0);
	if (ret)
		return ret;
	away = true;
	ret = own_namespace();
	space_leave();
	return ret;
}

/**
 * space_make - make the space of a thread
 * @pid: its process, or again the thread, see member_set()
 * @ino: inode number of its namespace
 */
static int space_make(pid_t pid, pid_t tid, uint64_t ino, struct space **space)
{
	struct space *s;
	struct stat st;
	int ret;

	members_look();
	if (memory_full())
		return -ENOBUFS;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->ino = ino;
	s->stack = s->control[0] = s->control[1] = s->member.fd = -1;
	list_add_tail(&s->link, &spaces);
	ret = s->host = keep(tid);
	if (ret >= 0)
		ret = !fstat(s->host, &st) && st.st_ino == ino &&
		      member_set(s, pid, tid) ? 0 : -ESRCH;
	if (!ret)
		ret = s->stack = stack_namespace();
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

/** space_find - find or make the space of a thread, see space_make() */
static int space_find(pid_t pid, pid_t tid, uint64_t ino, struct space **space)
{
	struct list *pos;

	list_for_each(pos, &spaces) {
		*space = container_of(pos, struct space, link);
		if ((*space)->ino == ino)
			return 0;
	}
	*space = NULL;
	return stack->abi != CTL_ABI_NATIVE ? -EOPNOTSUPP :
	       space_make(pid, tid, ino, space);
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
	ret = space_find(task_tgid(c->task), c->pid, (uint64_t)ino, space);
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
	ret = ino < 0 ? (int)ino : space_find(tid, tid, (uint64_t)ino, &space);
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

/* Where an attribute is nested in a request about a link. */
enum nest { LINK, LINK_TYPE, TYPE_DATA, PEER };

/** refers - whether an attribute of a link refers to a namespace */
static bool refers(int type)
{
	return type == IFLA_NET_NS_PID || type == IFLA_NET_NS_FD ||
	       type == IFLA_LINK_NETNSID || type == IFLA_TARGET_NETNSID;
}

/**
 * link_references - whether attributes of a link, or of its peer, refer to a
 * namespace
 * @in: where the attributes are nested
 */
static bool link_references(const char *p, size_t len, enum nest in)
{
	struct nlattr a;
	size_t n;

	for (; len >= sizeof(a); p += n, len -= n) {
		const char *data = p + sizeof(a);
		int type;

		memcpy(&a, p, sizeof(a));
		if (a.nla_len < sizeof(a) || a.nla_len > len)
			return false;
		n = a.nla_len - sizeof(a);
		type = a.nla_type & NLA_TYPE_MASK;
		if ((in == LINK || in == PEER) && refers(type))
			return true;
		if (((in == LINK && type == IFLA_LINKINFO) ||
		     (in == LINK_TYPE && type == IFLA_INFO_DATA)) &&
		    link_references(data, n, in + 1))
			return true;
		if (in == TYPE_DATA && type == PEER_INFO &&
		    n > sizeof(struct ifinfomsg) &&
		    link_references(data + sizeof(struct ifinfomsg),
				    n - sizeof(struct ifinfomsg), PEER))
			return true;
		n = NLA_ALIGN((size_t)a.nla_len);
		n = n < len ? n : len;
	}
	return false;
}

/**
 * space_references - make rtnetlink refuse messages that name a namespace
 * @conn: the socket to which they are sent
 * @msgs: @len bytes, in our memory; the type of such a message becomes one that
 *	the kernel answers with EOPNOTSUPP
 */
void space_references(const struct conn *conn, char *msgs, size_t len)
{
	struct nlmsghdr h;
	size_t n;

	if (conn->kind != KIND_NETLINK || conn->proto != NETLINK_ROUTE)
		return;
	for (; len >= sizeof(h); msgs += n, len -= n) {
		const size_t head = NLMSG_SPACE(sizeof(struct ifinfomsg));
		bool refused;

		memcpy(&h, msgs, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > len)
			break;
		refused = (h.nlmsg_type >= RTM_NEWNSID &&
			   h.nlmsg_type <= RTM_GETNSID) ||
			  (h.nlmsg_type >= RTM_NEWLINK &&
			   h.nlmsg_type <= RTM_SETLINK && h.nlmsg_len > head &&
			   link_references(msgs + head, h.nlmsg_len - head, LINK));
		if (refused) {
			h.nlmsg_type = UINT16_MAX;
			memcpy(msgs, &h, sizeof(h));
		}
		n = NLMSG_ALIGN((size_t)h.nlmsg_len);
		n = n < len ? n : len;
	}
}

/** space_stop - end all spaces */
void space_stop(void)
{
	while (!list_empty(&spaces))
		space_free(container_of(spaces.next, struct space, link));
}
