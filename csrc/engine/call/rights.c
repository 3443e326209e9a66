// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rights of served processes, such as those of a container (container.c).
 *
 * Theory of operation
 *
 * The user who starts lklrun may configure the stack, and so may the target.
 * The processes of a container may do only what their capabilities permit:
 * otherwise, each of them could take another address of the bridge.
 *
 * The stack's kernel has all the checks of a kernel. While it executes a call of
 * a served process, lklhost's task in the stack therefore has only the effective
 * capabilities of the calling thread. The stack also records them with each
 * socket that is created meanwhile, and a netlink socket without CAP_NET_ADMIN
 * never configures the stack, whoever uses it later.
 *
 * As in the host's kernel, capabilities count only in the user namespace that
 * owns the container's network namespace. A process that creates a user
 * namespace has all capabilities there, and none for the stack.
 *
 * Nobody knows the sender of a message that arrives through a netlink carrier,
 * by write(2) or by send(2) without an address. The stack gets such a message
 * without any capability.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/call/call.h"
#include "engine/call/rights.h"
#include "stack/stack.h"

#define WORDS	_LINUX_CAPABILITY_U32S_3

/*
 * @all: the capabilities of our task in the stack; 0 before rights_init()
 * @now: those that are effective now
 * @owner: the user namespace in which capabilities count. Its descriptor stays
 *	open, so that no other namespace gets its number
 */
static struct {
	uint64_t all, now;
	struct stat owner;
} rights;

/** effective - get the effective set of @data */
static uint64_t effective(const struct __user_cap_data_struct data[WORDS])
{
	return data[0].effective | (uint64_t)data[1].effective << 32;
}

/** stack_set - make @caps effective in the stack */
static int stack_set(uint64_t caps)
{
	struct __user_cap_header_struct hdr = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[WORDS] = {
		{ (uint32_t)caps, (uint32_t)rights.all, 0 },
		{ (uint32_t)(caps >> 32), (uint32_t)(rights.all >> 32), 0 },
	};

	return (int)ST(SYS_capset, &hdr, data, 0, 0, 0, 0);
}

/** stack_get - get the effective capabilities in the stack */
static int stack_get(uint64_t *caps)
{
	struct __user_cap_header_struct hdr = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[WORDS] = { { 0 } };
	long ret = ST(SYS_capget, &hdr, data, 0, 0, 0, 0);

	*caps = effective(data);
	return (int)ret;
}

/** stack_checks - whether the stack takes capabilities away, and back again */
static bool stack_checks(void)
{
	uint64_t none = ~0ull, again = 0;

	return !stack_get(&rights.all) && rights.all && !stack_set(0) &&
	       !stack_get(&none) && !stack_set(rights.all) &&
	       !stack_get(&again) && !none && again == rights.all;
}

/**
 * rights_init - prepare to serve the processes of a network namespace
 * @netns: the network namespace
 *
 * Returns -EOPNOTSUPP if the stack's kernel does not check capabilities.
 */
int rights_init(int netns)
{
	int owner = ioctl(netns, NS_GET_USERNS);

	if (owner < 0)
		return -errno;
	if (!stack_checks() || fstat(owner, &rights.owner)) {
		close(owner);
		rights.all = 0;
		return -EOPNOTSUPP;
	}
	rights.now = rights.all;
	return 0;
}

/** in_owner - whether the caller is in the user namespace that counts */
static bool in_owner(const struct call *c)
{
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", c->pid);
	return !stat(path, &st) && st.st_dev == rights.owner.st_dev &&
	       st.st_ino == rights.owner.st_ino;
}

/**
 * rights_get - get the caller's capabilities that count into @c->rights
 *
 * The pid belongs to the caller as long as the call waits. Returns -ESRCH if it
 * does not wait any more.
 */
int rights_get(struct call *c)
{
	struct __user_cap_header_struct hdr = {
		.version = _LINUX_CAPABILITY_VERSION_3, .pid = c->pid,
	};
	struct __user_cap_data_struct data[WORDS] = { { 0 } };

	c->rights = 0;
	if (!syscall(SYS_capget, &hdr, data) && in_owner(c))
		c->rights = effective(data);
	return call_valid(c) ? 0 : -ESRCH;
}

/**
 * rights_set - set the capabilities of the following calls in the stack
 * @caps: RIGHTS_ALL, or those of the caller
 * @had: set to the capabilities until now; may be NULL
 *
 * If this fails, the stack is short of memory and nothing has changed.
 */
int rights_set(uint64_t caps, uint64_t *had)
{
	int ret = 0;

	if (had)
		*had = rights.now;
	caps &= rights.all;
	if (caps != rights.now)
		ret = stack_set(caps);
	if (!ret)
		rights.now = caps;
	return ret;
}
