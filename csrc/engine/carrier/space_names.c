// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network namespaces that messages of rtnetlink name.
 *
 * The target names a namespace by a pid or by a descriptor. For the stack's
 * kernel, these would be its own pids and descriptors: those of lklhost, which
 * has all spaces. space_references() replaces them, in our copy of the message,
 * by our descriptor of the space. It refuses numbers that namespaces give to each
 * other, because the stack's kernel would ask for lklhost's rights.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/net_namespace.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/space.h"
#include "process/process.h"

#define PROCESSES_MAX	8192
#define PEER_INFO	1	/* of veth, vxcan and netkit: a link */

/** user_namespace - inode number of a thread's user namespace; 0 on error */
static uint64_t user_namespace(pid_t tid)
{
	char path[48];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", tid);
	return stat(path, &st) ? 0 : st.st_ino;
}

/**
 * may_use - whether a caller may refer to the network namespace @fd
 *
 * The host's kernel would ask for a capability in the user namespace that owns
 * it. A process can have one only if its own user namespace is the owner, or
 * one of the owner's parents. All programs of the target are root in the stack,
 * so we do not ask for the capability itself.
 */
static bool may_use(const struct call *c, int fd)
{
	uint64_t own = user_namespace(c->pid);
	int owner = ioctl(fd, NS_GET_USERNS), parent;
	bool may = false;
	struct stat st;

	while (owner >= 0 && !may) {
		may = own && !fstat(owner, &st) && st.st_ino == own;
		parent = may ? -1 : ioctl(owner, NS_GET_PARENT);
		close(owner);
		owner = parent;
	}
	return may;
}

/** pid_namespace - inode number of a process's pid namespace; 0 on error */
static uint64_t pid_namespace(pid_t pid)
{
	char path[48];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	return stat(path, &st) ? 0 : st.st_ino;
}

/** pid_inside - the pid of a process in its own pid namespace; 0 on error */
static pid_t pid_inside(pid_t pid)
{
	char path[48], line[256];
	int inside = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "NSpid:", 6)) {
			inside = atoi(strrchr(line, '\t') ? strrchr(line, '\t') : "");
			break;
		}
	if (f)
		fclose(f);
	return inside;
}

/** process_named - find the process that a caller names by @pid; 0: none */
static pid_t process_named(const struct call *c, pid_t pid)
{
	uint64_t ns = pid_namespace(c->pid);
	static pid_t pids[PROCESSES_MAX];
	size_t n;

	if (ns && ns == pid_namespace(getpid()))
		return pid;
	n = ns ? tree_list(pids, PROCESSES_MAX) : 0;
	while (n--)
		if (pid_namespace(pids[n]) == ns && pid_inside(pids[n]) == pid)
			return pids[n];
	return 0;
}

/**
 * open_named - open the namespace that a caller names
 * @by_pid: @value is a pid, otherwise a descriptor
 *
 * Process 1 of the host counts as a process of the run.
 */
static int open_named(const struct call *c, bool by_pid, int value)
{
	pid_t pid;

	if (!by_pid)
		return task_getfd(c->task, value);
	pid = process_named(c, value);
	if (pid == 1)
		return space_open(0);
	return pid ? space_open(pid) : -ESRCH;
}

/**
 * translate - replace the name of a namespace by a descriptor of the stack
 *
 * Returns false if the caller may not use the namespace, or it does not belong
 * to the run.
 */
static bool translate(const struct call *c, bool by_pid, char *data)
{
	bool may = false;
	int32_t value;
	int fd;

	if (!c || c->served || host.trace)
		return false;
	memcpy(&value, data, sizeof(value));
	fd = open_named(c, by_pid, value);
	if (fd < 0)
		return false;
	value = space_stack_fd(fd);
	if (value >= 0 && may_use(c, fd)) {
		memcpy(data, &value, sizeof(value));
		may = true;
	}
	if (by_pid)
		close(fd);
	else
		paged_close(c, fd);
	return may;
}

/* Where an attribute is nested in a request about a link. */
enum nest { LINK, LINK_TYPE, TYPE_DATA, PEER, IDS, ADDRESS };

/** names_pid - whether an attribute names a namespace by a pid */
static bool names_pid(enum nest in, int type)
{
	return in == IDS ? type == NETNSA_PID :
	       (in == LINK || in == PEER) && type == IFLA_NET_NS_PID;
}

/** names_fd - whether an attribute names a namespace by a descriptor */
static bool names_fd(enum nest in, int type)
{
	return in == IDS ? type == NETNSA_FD :
	       (in == LINK || in == PEER) && type == IFLA_NET_NS_FD;
}

/** names_id - whether an attribute names a namespace by its number in another one */
static bool names_id(enum nest in, int type)
{
	if (in == IDS)
		return type == NETNSA_TARGET_NSID;
	if (in == ADDRESS)
		return type == IFA_TARGET_NETNSID;
	return (in == LINK || in == PEER) &&
	       (type == IFLA_LINK_NETNSID || type == IFLA_TARGET_NETNSID);
}

static bool attrs_translate(const struct call *c, char *p, size_t len,
			    enum nest in);

/** attr_translate - translate() for an attribute, and for those in it */
static bool attr_translate(const struct call *c, char *p, enum nest in)
{
	const size_t peer = sizeof(struct ifinfomsg);
	struct nlattr a;
	char *data = p + sizeof(a);
	size_t n;
	int type;

	memcpy(&a, p, sizeof(a));
	type = a.nla_type & NLA_TYPE_MASK;
	n = a.nla_len - sizeof(a);
	if (names_id(in, type))
		return false;
	if (names_pid(in, type) || names_fd(in, type)) {
		if (n < sizeof(int32_t))	/* invalid */
			return false;
		a.nla_type = in == IDS ? NETNSA_FD : IFLA_NET_NS_FD;
		memcpy(p, &a, sizeof(a));
		return translate(c, names_pid(in, type), data);
	}
	if ((in == LINK && type == IFLA_LINKINFO) ||
	    (in == LINK_TYPE && type == IFLA_INFO_DATA))
		return attrs_translate(c, data, n, in + 1);
	return in != TYPE_DATA || type != PEER_INFO || n <= peer ||
	       attrs_translate(c, data + peer, n - peer, PEER);
}

/**
 * attrs_translate - translate() for attributes
 * @in: where they are nested
 */
static bool attrs_translate(const struct call *c, char *p, size_t len,
			    enum nest in)
{
	struct nlattr a;
	size_t n;

	for (; len >= sizeof(a); p += n, len -= n) {
		memcpy(&a, p, sizeof(a));
		if (a.nla_len < sizeof(a) || a.nla_len > len)
			break;
		if (!attr_translate(c, p, in))
			return false;
		n = NLA_ALIGN((size_t)a.nla_len);
		n = n < len ? n : len;
	}
	return true;
}

/** message_translate - translate() for a message of rtnetlink */
static bool message_translate(const struct call *c, char *msg,
			      const struct nlmsghdr *h)
{
	size_t head = NLMSG_SPACE(sizeof(struct ifinfomsg));
	enum nest in = LINK;

	if (h->nlmsg_type >= RTM_NEWNSID && h->nlmsg_type <= RTM_GETNSID) {
		head = NLMSG_SPACE(sizeof(struct rtgenmsg));
		in = IDS;
	} else if (h->nlmsg_type == RTM_GETADDR) {
		head = NLMSG_SPACE(sizeof(struct ifaddrmsg));
		in = ADDRESS;
	} else if (h->nlmsg_type < RTM_NEWLINK || h->nlmsg_type > RTM_SETLINK) {
		return true;
	}
	return h->nlmsg_len <= head ||
	       attrs_translate(c, msg + head, h->nlmsg_len - head, in);
}

/**
 * space_references - translate the namespaces that messages of rtnetlink name
 * @c: the call that sends them; NULL: the sender is unknown, and may name none
 * @conn: the socket to which they are sent
 * @msgs: @len bytes, in our memory. The type of a message that names another
 *	namespace becomes one that the kernel answers with EOPNOTSUPP
 */
void space_references(const struct call *c, const struct conn *conn, char *msgs,
		      size_t len)
{
	struct nlmsghdr h;
	size_t n;

	if (conn->kind != KIND_NETLINK || conn->proto != NETLINK_ROUTE)
		return;
	for (; len >= sizeof(h); msgs += n, len -= n) {
		memcpy(&h, msgs, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > len)
			break;
		if (!message_translate(c, msgs, &h)) {
			h.nlmsg_type = UINT16_MAX;
			memcpy(msgs, &h, sizeof(h));
		}
		n = NLMSG_ALIGN((size_t)h.nlmsg_len);
		n = n < len ? n : len;
	}
}
